# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""byte_changes.py make|apply|compare MOUNT WORK: one file for each operation that changes bytes, on gpu0/ and host/, and
the same on a plain file system below WORK. `make` writes and saves the files, `apply` runs each operation as a user
without CAP_FSETID and checks times and set-id bits, `compare` compares the bytes that a later mount restored with the
bytes of the plain file system."""

import ctypes
import errno
import mmap
import os
import sys
import time

BYTES, AT, LENGTH = 3 << 20, (1 << 20) + 4321, 70_001
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
USER = 54321
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def fallocate(mode, offset=AT, length=LENGTH):
    def change(path):
        with open(path, "r+b") as file:
            if libc.fallocate(file.fileno(), mode, offset, length) == 0:
                return
            # tmpfs, where the plain file may be, does not know this mode.
            if ctypes.get_errno() != errno.EOPNOTSUPP or mode != ZERO_RANGE:
                raise OSError(ctypes.get_errno(), f"fallocate mode {mode}")
            os.pwrite(file.fileno(), bytes(length), offset)
    return change


def with_fd(flags, act):
    def change(path):
        fd = os.open(path, flags)
        try:
            act(fd)
        finally:
            os.close(fd)
    return change


def copy_within(fd):
    assert os.copy_file_range(fd, fd, LENGTH, 0, AT) == LENGTH


def sendfile(fd):
    source = os.open(__file__, os.O_RDONLY)
    assert os.sendfile(fd, source, 0, 1000) == 1000
    os.close(source)


def splice(fd):
    out, into = os.pipe()
    os.write(into, b"x" * 3000)
    assert os.splice(out, fd, 3000, offset_dst=AT) == 3000
    os.close(out)
    os.close(into)


def store(fd):
    with mmap.mmap(fd, BYTES) as memory:
        memory[AT:AT + LENGTH] = b"m" * LENGTH
        memory.flush()


CHANGES = {
    "write": with_fd(os.O_RDWR, lambda fd: os.write(fd, b"w" * LENGTH)),
    "pwrite": with_fd(os.O_RDWR, lambda fd: os.pwrite(fd, b"p" * LENGTH, AT)),
    "pwritev": with_fd(os.O_RDWR, lambda fd: os.pwritev(fd, [b"a" * 999, b"b" * LENGTH], AT)),
    "append": with_fd(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"e" * LENGTH)),
    "past_end": with_fd(os.O_RDWR, lambda fd: os.pwrite(fd, b"z", 2 * BYTES)),
    "sendfile": with_fd(os.O_RDWR, sendfile),
    "splice": with_fd(os.O_RDWR, splice),
    "copy_file_range": with_fd(os.O_RDWR, copy_within),
    "ftruncate_shrink": with_fd(os.O_RDWR, lambda fd: os.ftruncate(fd, AT)),
    "ftruncate_grow": with_fd(os.O_RDWR, lambda fd: os.ftruncate(fd, BYTES + LENGTH)),
    "shrink_and_grow": with_fd(os.O_RDWR, lambda fd: (os.ftruncate(fd, AT), os.ftruncate(fd, BYTES))),
    "truncate": lambda path: os.truncate(path, AT),
    "open_trunc": with_fd(os.O_WRONLY | os.O_TRUNC, lambda fd: None),
    "fallocate": fallocate(0, BYTES - LENGTH, 2 * LENGTH),
    "fallocate_punch": fallocate(PUNCH_HOLE | KEEP_SIZE),
    "fallocate_zero": fallocate(ZERO_RANGE),
    "fallocate_zero_past_end": fallocate(ZERO_RANGE, BYTES - LENGTH, 2 * LENGTH),
    "store": with_fd(os.O_RDWR, store),
}
# A store through a mapping is no system call: it clears no bits, on any file system.
KEEPS_BITS = {"store"}


def paths(mount, work):
    for folder in ("gpu0", "host"):
        for name in CHANGES:
            yield name, f"{mount}/{folder}/{name}", f"{work}/plain.{folder}.{name}"


def make(path, name):
    with open(path, "wb") as file:
        pattern = (name.encode() + b" ") * 97
        file.write((pattern * (BYTES // len(pattern) + 1))[:BYTES])
        file.flush()
        os.fchown(file.fileno(), USER, USER)
        os.fchmod(file.fileno(), 0o6775)
        os.fsync(file.fileno())
    os.utime(path, (1, 1))


def apply(path, change):
    before = os.stat(path)
    os.setegid(USER)
    os.seteuid(USER)
    try:
        change(path)
    finally:
        os.seteuid(0)
        os.setegid(0)
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    return before, os.stat(path)


def main():
    what, mount, work = sys.argv[1:]
    os.setgroups([])
    os.chmod(work, 0o755)
    bad = 0
    for name, path, plain in paths(mount, work):
        if what == "make":
            make(path, name)
            make(plain, name)
        elif what == "apply":
            time.sleep(0.005)
            apply(plain, CHANGES[name])
            before, after = apply(path, CHANGES[name])
            for problem, is_so in (
                ("mtime did not move", after.st_mtime_ns <= before.st_mtime_ns),
                ("ctime did not move", after.st_ctime_ns <= before.st_ctime_ns),
                ("set-id bits are left", after.st_mode & 0o6000 and name not in KEEPS_BITS),
                ("size differs", after.st_size != os.stat(plain).st_size),
            ):
                if is_so:
                    print(f"{path}: {problem}: {oct(after.st_mode)} {before.st_ctime_ns} {after.st_ctime_ns}")
                    bad += 1
        else:
            with open(path, "rb") as file, open(plain, "rb") as other:
                if file.read() != other.read():
                    print(f"{path}: other bytes than {plain}")
                    bad += 1
    return 1 if bad else 0


sys.exit(main())
