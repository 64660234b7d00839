#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""What one user's slow requests do to another user's reads of 4 KiB. For each kind of request, processes of one user repeat the
request while a process of another user reads; the first row has processes that only compute, which need no daemon. Run as
root: tests/bench/neighbour.py --build build [KIND...]. To compare two builds on a busy machine, run both in turns."""

import argparse
import fcntl
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "mount"))
sys.dont_write_bytecode = True
from sharing import HEADER, MAGIC, NUMBERS, VERSION, connect  # noqa: E402

MIB = 1 << 20
ATTACKER, READER = 65534, 65533
LISTEN, LISTEN_PARK, NOTICE_PARK, LISTENERS = 5, 1, 1, 4000
IOC_NOTIFY = 3 << 30 | 24 << 16 | ord("g") << 8 | 0x4d


def become(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def filled(name, size):
    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    for at in range(0, size, MIB):
        os.pwrite(fd, bytes([at // MIB % 251 + 1]) * MIB, at)
    return fd


def attempt(call, *arguments):
    """A full GPU refuses some requests: they count, too."""
    try:
        call(*arguments)
    except OSError:
        pass


def alternate(name, attribute, values):
    while True:
        for value in values:
            attempt(os.setxattr, name, f"user.gpumem.{attribute}", value)


def compute(_name, _args):
    while True:
        pass


def page_size(name, args):
    filled(name, args.size * MIB)
    alternate(name, "page_size", (b"2M", b"64K"))


def resident(name, args):
    filled(name, args.size * MIB)
    alternate(name, "resident", (b"disk", b"gpu"))


def copy(name, args):
    source, target = filled(name, args.size * MIB), os.open(name + ".to", os.O_RDWR | os.O_CREAT)
    while True:
        attempt(os.copy_file_range, source, target, args.size * MIB, 0, 0)


def truncate(name, args):
    fd = filled(name, MIB)
    while True:
        attempt(os.posix_fallocate, fd, 0, args.size * MIB)
        attempt(os.ftruncate, fd, 4096)


def unlink(name, args):
    while True:
        fd = os.open(name, os.O_RDWR | os.O_CREAT)
        attempt(os.posix_fallocate, fd, 0, args.size * MIB)
        os.close(fd)
        os.unlink(name)


def save(name, args):
    fd = filled(name, args.size * MIB)
    os.setxattr(name, "user.gpumem.persist", b"disk")
    while True:
        os.pwrite(fd, os.urandom(4096), random.randrange(args.size) * MIB)
        attempt(os.fsync, fd)


def notify(name, args):
    if name.endswith("0"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
        listeners = [connect(args.mnt) for _ in range(LISTENERS)]
        for listener in listeners:
            listener.send(HEADER.pack(MAGIC, VERSION, LISTEN, HEADER.size + 8, next(NUMBERS)) + struct.pack("=II", LISTEN_PARK, 0))
            listener.recv(64)
    directory = os.open(".", os.O_RDONLY)
    while True:
        attempt(fcntl.ioctl, directory, IOC_NOTIFY, struct.pack("=IIIiII", VERSION, NOTICE_PARK, 0, 0, 0, 0))


KINDS = {kind.__name__: kind for kind in (compute, page_size, resident, copy, truncate, unlink, save, notify)}


def attackers_start(args, kind):
    pids = []
    for number in range(args.processes):
        pid = os.fork()
        if pid == 0:
            if kind is notify and number == 0:
                resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
            become(ATTACKER)
            os.chdir(args.mnt / "gpu0/attacker")
            try:
                kind(f"{kind.__name__}{number}", args)
            finally:
                os._exit(1)
        pids.append(pid)
    return pids


def attackers_end(args, pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)
    for path in (args.mnt / "gpu0/attacker").iterdir():
        path.unlink()


def latencies(fd, seconds):
    """Milliseconds of each read, and a pause after each."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        offset = random.randrange(256) * 4096
        began = time.perf_counter()
        os.pread(fd, 4096, offset)
        found.append((time.perf_counter() - began) * 1000)
        time.sleep(0.001)
    return sorted(found)


def measure(args, fd, kind):
    pids = attackers_start(args, kind) if kind else []
    time.sleep(args.warm if kind else 0)
    ms = latencies(fd, args.seconds)
    attackers_end(args, pids)
    rank = lambda share: ms[min(len(ms) - 1, int(len(ms) * share))]
    print(f"{kind.__name__ if kind else 'idle':10} {rank(.5):9.3f} {rank(.99):9.3f} {ms[-1]:9.3f} {len(ms):7}", flush=True)


def mount(args, folder):
    (folder / "spool").mkdir(mode=0o700)
    args.mnt.mkdir()
    library = {"LD_LIBRARY_PATH": str(args.build / "driver")} if args.backend == "cuda" else {}
    options = (f"backend={args.backend},allow_other,threads=4,size=4G,spill=host:1G,disk:4G,spool={folder}/spool,"
               f"log_level=error,{args.options}").rstrip(",")
    daemon = subprocess.Popen([args.build / "gpumemfs", "-f", args.mnt, "-o", options], env={**os.environ, **library})
    while not os.path.ismount(args.mnt) or not (args.mnt / "gpu0").is_dir():
        time.sleep(0.05)
    for name, user in (("attacker", ATTACKER), ("reader", READER)):
        (args.mnt / "gpu0" / name).mkdir()
        os.chown(args.mnt / "gpu0" / name, user, user)
    return daemon


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--backend", default="host")
    parser.add_argument("--options", default="", help="more mount options")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--size", type=int, default=60, help="MiB of each file")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warm", type=float, default=3, help="seconds before the first read")
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; default: all")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        args.mnt = Path(name) / "mnt"
        daemon = mount(args, Path(name))
        try:
            fd = filled(args.mnt / "gpu0/reader/file", MIB)
            print(f"{'ms':10} {'p50':>9} {'p99':>9} {'most':>9} {'reads':>7}")
            for kind in [None, *(KINDS[kind] for kind in args.kinds or KINDS)]:
                measure(args, fd, kind)
            os.close(fd)
        finally:
            subprocess.run(["umount", args.mnt], check=False)
            daemon.wait()


if __name__ == "__main__":
    main()
