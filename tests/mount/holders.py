#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""holders.py MAJOR:MINOR: a line for each process that keeps the mount of this device: by a file, folder, root or mapping,
or by a mount namespace other than the caller's. No request is sent to the mount's daemon."""

import ctypes
import os
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_STATX_DONT_SYNC = -100, 0x4000
# stx_dev_major of struct statx; stx_dev_minor follows.
DEVICE_AT, STATX_BYTES = 136, 256


def device_of(link):
    """MAJOR:MINOR of what a link of /proc leads to, from the kernel's cache: stat(2) would ask the daemon."""
    answer = (ctypes.c_uint32 * (STATX_BYTES // 4))()
    if LIBC.statx(AT_FDCWD, os.fsencode(link), AT_STATX_DONT_SYNC, 0, answer):
        return ""
    return f"{answer[DEVICE_AT // 4]}:{answer[DEVICE_AT // 4 + 1]}"


def links(process):
    yield from (process / name for name in ("cwd", "root"))
    yield from sorted((process / "fd").iterdir(), key=lambda link: int(link.name))


def maps(process, device):
    major, minor = map(int, device.split(":"))
    return f" {major:02x}:{minor:02x} " in (process / "maps").read_text(errors="replace")


def namespace(process):
    return os.readlink(process / "ns" / "mnt")


def held_by(process, device):
    """The ways in which a process holds the device."""
    found = [str(link.relative_to(process)) for link in links(process) if device_of(link) == device]
    if maps(process, device):
        found.append("a mapping")
    if namespace(process) != namespace(Path("/proc/thread-self")) and f" {device} " in (process / "mountinfo").read_text(errors="replace"):
        found.append(f"the mount in its namespace {namespace(process)}")
    return found


def holders(device):
    for process in sorted((p for p in Path("/proc").iterdir() if p.name.isdigit()), key=lambda p: int(p.name)):
        try:
            found = held_by(process, device)
            name = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80].strip()
        except OSError:
            continue
        if found:
            yield f"process {process.name} ({name}) has {', '.join(found[:8])}"


if __name__ == "__main__":
    for line in holders(sys.argv[1]):
        print(line)
