# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Holds a daemon at one of the system calls by which it answers a request or listens at its sharing socket: its thread
waits there until the daemon is killed."""

import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import threading
from pathlib import Path

WRITEV, LISTEN, SECCOMP = {"x86_64": (20, 50, 317), "aarch64": (66, 201, 277)}[platform.machine()]
SET_MODE_FILTER, NEW_LISTENER, CONTINUE = 1, 8, 1
RET_ALLOW, RET_USER_NOTIF = 0x7fff0000, 0x7fc00000
LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
# struct seccomp_notif and struct seccomp_notif_resp
NOTIF, RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
IOC_RECEIVE, IOC_SEND = (3 << 30 | size << 16 | ord("!") << 8 | number for number, size in enumerate((NOTIF.size, RESPONSE.size)))


def filter_calls():
    """From here on another process decides on such calls of this process and of those that it starts: returns where."""
    code = b"".join(struct.pack("=HBBI", *line) for line in (
        (LOAD_WORD, 0, 0, 0), (JUMP_EQUAL, 1, 0, WRITEV), (JUMP_EQUAL, 0, 1, LISTEN),
        (RETURN, 0, 0, RET_USER_NOTIF), (RETURN, 0, 0, RET_ALLOW)))
    program = ctypes.create_string_buffer(struct.pack("@HP", 5, ctypes.addressof(buffer := ctypes.create_string_buffer(code))))
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(SECCOMP, SET_MODE_FILTER, NEW_LISTENER, program)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    del buffer
    return fd


class HeldCalls:
    """Of the daemons of a keeper, the call of this number is held. held: the daemon whose call that is."""

    def __init__(self, number):
        self.left, self.held = number, None
        self.parent, self.child = socket.socketpair()

    def in_child(self):
        """Before the program is executed."""
        socket.send_fds(self.child, [b"x"], [filter_calls()])

    def in_parent(self, keeper):
        self.keeper = keeper
        _, (self.listener,), _, _ = socket.recv_fds(self.parent, 1, 1)
        self.parent.close()
        self.child.close()
        threading.Thread(target=self.serve, daemon=True).start()

    def hold_none(self):
        """From here on."""
        self.left = 0

    def serve(self):
        waiting = select.poll()
        waiting.register(self.listener, select.POLLIN)
        while all(events == select.POLLIN for _, events in waiting.poll()):
            notif = bytearray(NOTIF.size)
            try:
                fcntl.ioctl(self.listener, IOC_RECEIVE, notif)
                self.decide(*NOTIF.unpack(notif))
            except OSError:  # its thread has ended
                pass
        os.close(self.listener)

    def decide(self, call, thread, _flags, number, _architecture, _pointer, fd, *_arguments):
        status = Path(f"/proc/{thread}/status").read_text()
        process = int(status.split("\nTgid:\t")[1].split("\n")[0])
        counts = number == LISTEN or os.readlink(f"/proc/{thread}/fd/{fd}") == "/dev/fuse"
        if counts and process != self.keeper and not self.held:
            self.left -= 1
            if self.left == 0:
                self.held = process
                return
        fcntl.ioctl(self.listener, IOC_SEND, bytearray(RESPONSE.pack(call, 0, 0, CONTINUE)))
