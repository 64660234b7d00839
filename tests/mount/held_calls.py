# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Holds a daemon at a system call that answers a request, listens at the sharing socket, or receives or sends a packet
there. The calling thread waits in the call until the daemon is killed or the call is released."""

import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import threading
from pathlib import Path

WRITEV, RECVFROM, SENDMSG, LISTEN, SECCOMP = {"x86_64": (20, 45, 46, 50, 317),
                                              "aarch64": (66, 207, 211, 201, 277)}[platform.machine()]
PIDFD_OPEN, PIDFD_GETFD = 434, 438
# Only the packets of the sharing socket are sent with these flags. The place is in struct seccomp_data.
SHARE_FLAGS, SENDMSG_FLAGS_AT = socket.MSG_DONTWAIT | 0x4000, 32
SET_MODE_FILTER, NEW_LISTENER, CONTINUE = 1, 8, 1
RET_ALLOW, RET_USER_NOTIF = 0x7fff0000, 0x7fc00000
LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
# struct seccomp_notif and struct seccomp_notif_resp
NOTIF, RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
IOC_RECEIVE, IOC_SEND = (3 << 30 | size << 16 | ord("!") << 8 | number for number, size in enumerate((NOTIF.size, RESPONSE.size)))


def filter_calls():
    """From here on another process decides on such calls of this process and its children. Returns the descriptor for that
    process."""
    code = b"".join(struct.pack("=HBBI", *line) for line in (
        (LOAD_WORD, 0, 0, 0), (JUMP_EQUAL, 5, 0, WRITEV), (JUMP_EQUAL, 4, 0, RECVFROM), (JUMP_EQUAL, 3, 0, LISTEN),
        (JUMP_EQUAL, 0, 3, SENDMSG), (LOAD_WORD, 0, 0, SENDMSG_FLAGS_AT), (JUMP_EQUAL, 0, 1, SHARE_FLAGS),
        (RETURN, 0, 0, RET_USER_NOTIF), (RETURN, 0, 0, RET_ALLOW)))
    program = ctypes.create_string_buffer(struct.pack("@HP", 9, ctypes.addressof(buffer := ctypes.create_string_buffer(code))))
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(SECCOMP, SET_MODE_FILTER, NEW_LISTENER, program)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    del buffer
    return fd


def answers_or_listens(number, path, _arguments):
    return number == LISTEN or (number == WRITEV and path == "/dev/fuse")


class HeldCalls:
    """Holds a call of a keeper's daemons: the one with this number among the calls for which counts returns true. held: the
    process of the daemon that makes the call."""

    def __init__(self, number, counts=answers_or_listens):
        self.left, self.counts, self.held = number, counts, None
        self.parent, self.child = socket.socketpair()

    def in_child(self):
        """Called in the keeper's process, before the program is executed."""
        socket.send_fds(self.child, [b"x"], [filter_calls()])

    def in_parent(self, keeper):
        self.keeper = keeper
        _, (self.listener,), _, _ = socket.recv_fds(self.parent, 1, 1)
        self.parent.close()
        self.child.close()
        threading.Thread(target=self.serve, daemon=True).start()

    def hold_none(self):
        """No further call is held."""
        self.left = 0

    def release(self):
        """Lets the held call go on."""
        self.go_on(self.call)

    def go_on(self, call):
        fcntl.ioctl(self.listener, IOC_SEND, bytearray(RESPONSE.pack(call, 0, 0, CONTINUE)))

    def held_socket(self):
        """A duplicate of the socket on which the call is made."""
        libc = ctypes.CDLL(None, use_errno=True)
        process = libc.syscall(PIDFD_OPEN, self.held, 0)
        fd = libc.syscall(PIDFD_GETFD, process, self.fd, 0)
        os.close(process)
        return socket.socket(fileno=fd)

    def serve(self):
        waiting = select.poll()
        waiting.register(self.listener, select.POLLIN)
        while all(events == select.POLLIN for _, events in waiting.poll()):
            notif = bytearray(NOTIF.size)
            try:
                fcntl.ioctl(self.listener, IOC_RECEIVE, notif)
                self.decide(*NOTIF.unpack(notif))
            except OSError:  # the calling thread has ended
                pass
        os.close(self.listener)

    def decide(self, call, thread, _flags, number, _architecture, _pointer, fd, *arguments):
        status = Path(f"/proc/{thread}/status").read_text()
        process = int(status.split("\nTgid:\t")[1].split("\n")[0])
        path = os.readlink(f"/proc/{thread}/fd/{fd}")
        if not self.held and process != self.keeper and self.counts(number, path, (fd, *arguments)):
            self.left -= 1
            if self.left == 0:
                self.call, self.fd, self.held = call, fd, process
                return
        self.go_on(call)
