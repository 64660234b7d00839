# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Mounts, where the bytes of files lie, and which processes share them."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from typing import Any, NamedTuple, Optional, Union

Path = Union[str, bytes, "os.PathLike[Any]"]
_TYPE = "fuse.gpumemfs"
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


class Sharer(NamedTuple):
    """A lease. access: "rw", "ro", "copy" for a private copy, or "own" for the process that shared its memory as the
    file. since: seconds since the epoch. path: None for a file that the caller may not see."""

    pid: int
    uid: int
    access: str
    bytes: int
    since: int
    path: Optional[str]


class _Mount(NamedTuple):
    where: str
    device: int


def _unescaped(text: bytes) -> str:
    return os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), text))


def _whole_mounts() -> list[_Mount]:
    """The mounts that show all of their file system."""
    found = []
    with open("/proc/self/mountinfo", "rb") as table:
        for line in table:
            before, _, after = line.partition(b" - ")
            _, _, numbers, root, where = before.split()[:5]
            if after.startswith(_TYPE.encode() + b" ") and root == b"/":
                major, _, minor = numbers.partition(b":")
                found.append(_Mount(_unescaped(where), os.makedev(int(major), int(minor))))
    return found


def mounts() -> list[str]:
    """The mounts of gpumemfs that this process sees, in the order of the kernel's table."""
    return [mount.where for mount in _whole_mounts()]


def _mount_of(path: Path) -> tuple[_Mount, os.stat_result]:
    found = os.stat(path)
    for mount in reversed(_whole_mounts()):
        if mount.device == found.st_dev:
            return mount, found
    raise OSError(errno.ENOTSUP, "not on a mount of gpumemfs that is visible here", os.fsdecode(path))


def status(path: Path) -> dict[str, Any]:
    """What the daemon of the path's mount has, as .gpumem/stats.json in gpumem(7).

    OSError: ENOTSUP if the path is on no mount of gpumemfs; ENOTCONN if the daemon has ended."""
    return _stats(_mount_of(path)[0])


def _stats(mount: _Mount) -> dict[str, Any]:
    with open(os.path.join(mount.where, ".gpumem", "stats.json"), encoding="utf-8") as file:
        stats: dict[str, Any] = json.load(file)
    return stats


def sharers(path: Path) -> list[Sharer]:
    """The leases of a file, or of all files of a mount. Root and the owner of a file see all of its leases, other users
    their own.

    OSError: as status()."""
    mount, found = _mount_of(path)
    whole = os.path.realpath(os.fsdecode(path)) == mount.where
    return [Sharer(lease["pid"], lease["uid"], lease["access"], lease["bytes"], lease["since"],
                   mount.where + _unescaped(os.fsencode(lease["path"])) if "path" in lease else None)
            for lease in _stats(mount)["leases"] if whole or lease["inode"] == found.st_ino]


def _check_file(path: Path) -> None:
    _, found = _mount_of(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL, "not a regular file", os.fsdecode(path))


def residence(path: Path) -> dict[str, int]:
    """The bytes of a file's memory by place: the file's own place first, such as gpu0, then host and disk if bytes are
    there.

    OSError: EISDIR for a directory; ENOTSUP if the file is not on gpumemfs."""
    _check_file(path)
    return _residence(path)


def _residence(path: Path) -> dict[str, int]:
    text = os.getxattr(path, "user.gpumem.resident").decode()
    return {name: int(size or 0) for name, _, size in (word.partition(":") for word in text.split())}


def _move(path: Path, value: bytes) -> dict[str, int]:
    _check_file(path)
    os.setxattr(path, "user.gpumem.resident", value)
    return _residence(path)


def evict(path: Path, disk: bool = False) -> dict[str, int]:
    """Moves a file's memory from its GPU to system memory, or to the disk of the mount, and returns residence().

    OSError: EBUSY while processes have the file mapped; ENOSPC if the place is full; ENOTSUP if the mount has no such
    place (spill= in gpumemfs(8)) or the file is not on gpumemfs."""
    return _move(path, b"disk" if disk else b"evicted")


def fetch(path: Path) -> dict[str, int]:
    """Brings a file's memory back to its GPU, and returns residence() when all bytes are there.

    OSError: ENOSPC if the GPU is full; ENOTSUP if the file is not on gpumemfs."""
    return _move(path, b"gpu")
