# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A stand-in for the service manager, with a store of file descriptors (sd_notify(3), FDSTORE=1): a service stores and
removes descriptors, and is started again with the stored ones, as by systemd."""

import array
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

# Puts the descriptors at 3 and on, and sets LISTEN_PID, which only the process that executes the service knows.
STARTER = r"""
import fcntl, os, resource, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
n = int(sys.argv[1])
high = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 3 + n + 1000) for fd in sys.argv[2:2 + n]]
os.closerange(3, 3 + n + 1000)
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
os.closerange(3 + n, most)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2 + n], sys.argv[2 + n:])
"""


def belongs(process, mark):
    try:
        return mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def waits_for_answer(pid):
    """Whether the mount's answer alone can end the process. Some kernels do not show where a process waits."""
    try:
        where = Path(f"/proc/{pid}/wchan").read_text()
        asleep = "\nState:\tD" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return asleep and where in ("request_wait_answer", "", "0")


class ServiceManager:
    """Listens at a socket of this path, the service's NOTIFY_SOCKET."""

    def __init__(self, path):
        self.path, self.store, self.wrong = str(path), {}, []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.lock, self.ended = threading.Lock(), False
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while not self.ended:
            if select.select([self.socket], [], [], 0.05)[0]:
                with self.lock:
                    self.hear()

    def end(self):
        """Ends the thread: the names left in the store, and the service's mistakes."""
        self.ended = True
        self.thread.join()
        self.hear()
        self.socket.close()
        os.unlink(self.path)
        left = list(self.store)
        for name in left:
            self.drop(name)
        return left, self.wrong

    def hear(self):
        while True:
            try:
                text, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(4), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            fields = dict(line.split("=", 1) for line in text.decode().splitlines())
            fds = array.array("i", b"".join(data for _, _, data in ancillary))
            if "FDSTORE" in fields:
                if fields.get("FDPOLL") != "0":
                    self.wrong.append(f"{fields['FDNAME']} would be polled, and removed when it hangs up")
                self.drop(fields["FDNAME"])
                self.store[fields["FDNAME"]] = fds[0]
            elif "FDSTOREREMOVE" in fields:
                self.drop(fields["FDNAME"])

    def drop(self, name):
        if name in self.store:
            os.close(self.store.pop(name))

    def kill_all(self):
        """Ends the rest of the service, as systemd does with KillMode=mixed when the main process has ended. Returns when only
        processes are left that SIGKILL cannot end: those that wait for an answer to a request which a daemon had read.
        systemd would wait for TimeoutStopSec."""
        mark, left = f"NOTIFY_SOCKET={self.path}".encode(), [0]
        while not all(map(waits_for_answer, left)):
            left = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and belongs(entry, mark)]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def start(self, argv, env, **more):
        """Starts the service with all descriptors of the store."""
        with self.lock:
            self.hear()
            names, fds = list(self.store), list(self.store.values())
            env = {**env, "NOTIFY_SOCKET": self.path, "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": ":".join(names)}
            return subprocess.Popen([sys.executable, "-c", STARTER, str(len(fds)), *map(str, fds), *map(str, argv)],
                                    env=env, pass_fds=fds, **more)
