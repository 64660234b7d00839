# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The directories of versions that are hidden, because they are being made or removed, and the memory of an earlier
version that no process has. Names that hide are as in client/lib/versions/versions.h."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import signal
import stat
from collections.abc import Collection, Mapping
from typing import NamedTuple, Optional

import torch

from . import _save
from ._load import SINGLE

CURRENT, PREVIOUS = "current", "previous"
_PUBLISHED, _MADE = "user.versions.published", "user.versions.made"
_NEW, _OLD = ".new-", ".old-"
_ALIGNMENT = 256  # as of save_file()
_SETSIG = 10  # F_SETSIG of fcntl(2)
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1  # of renameat2(2)
_libc = ctypes.CDLL(None, use_errno=True)


def set_check(directory: str) -> None:
    """Other users could put links to foreign files in the place of what is made in the set."""
    found = os.stat(directory)
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, "the set belongs to another user", directory)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, "other users may rename what is in the set: take their permission to write, or "
                                           "set the sticky bit", directory)


def is_name(name: str) -> bool:
    return name != "" and "/" not in name and not name.startswith(".")


def link_read(directory: str, link: str) -> Optional[str]:
    """The version that a link of the set names; None: there is no such link."""
    path = os.path.join(directory, link)
    try:
        name = os.readlink(path)
    except FileNotFoundError:
        return None
    if not is_name(name) or name in (CURRENT, PREVIOUS):
        raise OSError(errno.ELOOP, "it leads out of the set", path)
    return name


class Layout(NamedTuple):
    places: Mapping[str, _save._Place]
    header: bytes
    size: int


def layout_of(tensors: Mapping[str, torch.Tensor]) -> Layout:
    places = _save._layout(tensors, _ALIGNMENT)
    header = _save._pack_header(places, None, _ALIGNMENT)
    return Layout(places, header, len(header) + sum(place.size for place in places.values()))


def published(directory: str) -> list[str]:
    """The versions that new() of this user has made and published, the last published first. Others are not this
    module's."""
    found = []
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if is_name(name):
            with contextlib.suppress(OSError, ValueError):
                os.getxattr(path, _MADE, follow_symlinks=False)
                if os.lstat(path).st_uid != os.geteuid():
                    continue
                found.append((int(os.getxattr(path, _PUBLISHED, follow_symlinks=False)), name))
    return [name for _, name in sorted(found, reverse=True)]


def _lock(path: str) -> int:
    """A descriptor of the directory, locked while a process makes or removes it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _hidden(directory: str, prefix: str) -> str:
    return os.path.join(directory, prefix + secrets.token_hex(8))


def _is_alone(path: str) -> bool:
    """Whether no process has the file, which has no name in sight any more. Of open files the kernel knows: it grants a
    lease to write (fcntl(2)) only then, which an open(2) would break with a signal. Of memory that a process has by
    libgpumem alone the daemon knows."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.fcntl(fd, _SETSIG, signal.SIGURG)  # ignored, unlike SIGIO
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        is_alone = os.fstat(fd).st_nlink == 1 and os.getxattr(fd, "user.gpumem.leases") == b"0"
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return is_alone
    except OSError:
        return False
    finally:
        os.close(fd)


@contextlib.contextmanager
def _taken_away(directory: str, name: str, kept: Collection[Optional[str]]):  # type: ignore[no-untyped-def]
    """Hides a version: first it loses its name, then its users and the links are looked for: a reader looks for the name
    when it has the file, a publisher when it has changed the link. Gives the hidden directory, or None: it is kept. At
    the end of the block it gets its name back, if it is still there."""
    folder, hidden = os.path.join(directory, name), _hidden(directory, _OLD)
    lock = _lock(folder)
    try:
        os.rename(folder, hidden)
        is_kept = name in kept or link_read(directory, CURRENT) == name
        try:
            yield None if is_kept or not _is_alone(os.path.join(hidden, SINGLE)) else hidden
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.rename(hidden, folder)
    finally:
        os.close(lock)


def _has_header(path: str, layout: Layout) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.fstat(fd).st_size == layout.size and os.pread(fd, len(layout.header), 0) == layout.header
    finally:
        os.close(fd)


def _memory_of_retired(directory: str, kept: Collection[Optional[str]], layout: Layout, target: str) -> bool:
    """Moves the file of an earlier version of the same layout to the target, the oldest first. The version ends."""
    for name in reversed(published(directory)):
        if name in kept:
            continue
        with contextlib.suppress(OSError):
            if not _has_header(os.path.join(directory, name, SINGLE), layout):
                continue
            with _taken_away(directory, name, kept) as hidden:
                if hidden is None:
                    continue
                os.rename(os.path.join(hidden, SINGLE), target)
                shutil.rmtree(hidden)
            _previous_forget(directory, name)
            return True
    return False


def _previous_forget(directory: str, name: str) -> None:
    """There is no way back to a version whose memory was taken."""
    with contextlib.suppress(OSError):
        if link_read(directory, PREVIOUS) == name:
            os.unlink(os.path.join(directory, PREVIOUS))


def retired_remove(directory: str, kept: Collection[Optional[str]]) -> None:
    """Removes versions that are not kept, unless a process has them."""
    for name in published(directory):
        if name not in kept:
            with contextlib.suppress(OSError), _taken_away(directory, name, kept) as hidden:
                if hidden is not None:
                    shutil.rmtree(hidden)


def left_remove(directory: str) -> None:
    """Removes what killed processes have left."""
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            if name.startswith((_NEW, _OLD)) or (is_name(name) and _is_unpublished(os.path.join(directory, name))):
                _unlocked_remove(os.path.join(directory, name))


def _is_unpublished(path: str) -> bool:
    """Whether the trainer had given the version its name, and not published it."""
    names = os.listxattr(path, follow_symlinks=False)
    return _MADE in names and _PUBLISHED not in names


def _unlocked_remove(path: str) -> None:
    """Unless its process still has the lock, or has published it by now."""
    lock = _lock(path)
    try:
        if os.path.basename(path).startswith((_NEW, _OLD)) or _is_unpublished(path):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def _directory_new(directory: str) -> tuple[str, int]:
    """A hidden directory and its lock. A process that removes such directories may be quicker."""
    while True:
        path = _hidden(directory, _NEW)
        os.mkdir(path)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            lock = _lock(path)
            if os.path.exists(path):
                return path, lock
            os.close(lock)


def _rename_new(path: str, target: str) -> None:
    """FileExistsError: there is a target, if only an empty directory."""
    if _libc.renameat2(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


class Hidden:
    """A directory for a version under way, locked until close() or abandon(). path: where it is now. file: the version's
    file in it. has_memory: that of an earlier version of the layout, which has ended; otherwise there is no file yet."""

    def __init__(self, directory: str, layout: Layout, kept: Collection[Optional[str]]) -> None:
        self._set, self._name = directory, ""
        self.path, self._lock = _directory_new(directory)
        try:
            os.setxattr(self.path, _MADE, b"gpumem.torch")
            self.has_memory = _memory_of_retired(directory, kept, layout, self.file)
        except BaseException:
            self.abandon()
            raise

    @property
    def file(self) -> str:
        return os.path.join(self.path, SINGLE)

    def show(self, name: str) -> None:
        """Gives the directory its name. FileExistsError: the set has that name."""
        target = os.path.join(self._set, name)
        _rename_new(self.path, target)
        self.path, self._name = target, name

    def close(self) -> None:
        """After the publication."""
        os.close(self._lock)

    def abandon(self) -> None:
        """Before the publication. Stays, if another process has published it."""
        try:
            if self._name:
                self._hide()
            if not self._name:
                shutil.rmtree(self.path, ignore_errors=True)
        finally:
            os.close(self._lock)

    def _hide(self) -> None:
        """First it loses its name, then the link is looked for."""
        hidden = _hidden(self._set, _OLD)
        os.rename(self.path, hidden)
        if link_read(self._set, CURRENT) == self._name:
            os.rename(hidden, self.path)
        else:
            self.path, self._name = hidden, ""
