# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Directories of the destination, in which other users may make names: opened once, without links below."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple, Optional

_LINKS_MAX = 40
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class Place(NamedTuple):
    """A name in an open directory; "": the directory itself."""

    folder: int
    name: str


@contextlib.contextmanager
def named(path: str) -> Iterator[None]:
    """An error of a call by a descriptor gets the path."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def is_trusted(folder: int, found: os.stat_result) -> bool:
    """Whether this process may use what the owner of found has made in the folder. Where all users may make names, as in
    /tmp, only names of this user and of the folder's owner: the rule of fs.protected_symlinks, which may be off."""
    above = os.fstat(folder)
    shared = above.st_mode & stat.S_ISVTX and above.st_mode & stat.S_IWOTH
    return not shared or found.st_uid in (os.geteuid(), above.st_uid)


def _split(path: str) -> tuple[str, str]:
    folder, name = os.path.split(path.rstrip("/") or "/")
    return (os.path.join(folder, name), "") if name in ("", ".", "..") else (folder or ".", name)


def _link_text(folder: int, name: str, path: str) -> Optional[str]:
    """Where the name leads; "" for a directory, None for any other file and for a new name."""
    try:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISLNK(found.st_mode):
            return "" if stat.S_ISDIR(found.st_mode) else None
        if not is_trusted(folder, found):
            raise OSError(errno.EACCES, "a link of another user, where all users may make links", path)
        return os.readlink("", dir_fd=fd)
    finally:
        os.close(fd)


def find(path: str) -> Place:
    """The place that a user names, with links followed. The caller closes the folder. OSError."""
    above, rest = None, path
    for _ in range(_LINKS_MAX):
        folder_path, name = _split(rest)
        try:
            with named(path):
                folder = os.open(folder_path, _FOLDER, dir_fd=above)
        finally:
            if above is not None:
                os.close(above)
        above = folder
        try:
            text = _link_text(folder, name, path) if name else None
            if text == "":
                above = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                return Place(above, "")
        except OSError:
            os.close(folder)
            raise
        if text is None:
            return Place(folder, name)
        rest = text
    if above is not None:
        os.close(above)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def enter(folder: int, name: str, path: str) -> int:
    """Opens the directory of the name, and makes one if there is none. OSError."""
    made = False
    with contextlib.suppress(FileExistsError), named(path):
        os.mkdir(name, dir_fd=folder)
        made = True
    with named(path):
        fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    found = os.fstat(fd)
    if found.st_uid == os.geteuid() or (not made and is_trusted(folder, found)):
        return fd
    os.close(fd)
    raise OSError(errno.EACCES, "a directory of another user, where all users may make names", path)


def make(path: str) -> int:
    """Opens the directory that a user names, and makes the missing ones. OSError."""
    try:
        place = find(path)
    except FileNotFoundError:
        folder, name = _split(path)
        if not name:
            raise
        place = Place(make(folder), name)
    if not place.name:
        return place.folder
    try:
        return enter(*place, path)
    finally:
        os.close(place.folder)


class Folders:
    """The directories below an open one, which is closed with them."""

    def __init__(self, base: int, path: str) -> None:
        self._path, self._open = path, {"": base}

    def place(self, name: str) -> Place:
        folder, _, last = name.rpartition("/")
        return Place(self._folder(folder), last)

    def _folder(self, name: str) -> int:
        if name not in self._open:
            self._open[name] = enter(*self.place(name), os.path.join(self._path, name))
        return self._open[name]

    def close(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open = {}
