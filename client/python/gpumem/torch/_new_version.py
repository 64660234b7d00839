# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A version under way: a hidden directory of the set until it is published, with the memory of an earlier version if
no process has that. Names that hide are as in client/lib/versions/versions.h."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import signal
import stat
import weakref
from collections.abc import Collection, Mapping
from typing import NamedTuple, Optional, Union

import torch

from .. import _native
from .._memory import FileMemory
from . import _save, _tensors
from ._load import SINGLE

CURRENT, PREVIOUS = "current", "previous"
_PUBLISHED, _MADE = "user.versions.published", "user.versions.made"
_NEW, _OLD = ".new-", ".old-"
_ALIGNMENT = 256  # as of save_file()
_SETSIG = 10  # F_SETSIG of fcntl(2)


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
    """The versions that new() has made and published, the last published first. Others are not this module's."""
    found = []
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if is_name(name):
            with contextlib.suppress(OSError, ValueError):
                os.getxattr(path, _MADE, follow_symlinks=False)
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
    """Removes versions that are not kept, unless a process has them, and what killed processes have left."""
    for name in published(directory):
        if name not in kept:
            with contextlib.suppress(OSError), _taken_away(directory, name, kept) as hidden:
                if hidden is not None:
                    shutil.rmtree(hidden)
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            if name.startswith((_NEW, _OLD)) or (is_name(name) and _is_unpublished(os.path.join(directory, name))):
                _left_remove(os.path.join(directory, name))


def _is_unpublished(path: str) -> bool:
    """Whether the trainer had given the version its name, and not published it."""
    names = os.listxattr(path, follow_symlinks=False)
    return _MADE in names and _PUBLISHED not in names


def _left_remove(path: str) -> None:
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


class New:
    """directory: for further files of the version. tensors: the file's memory, by name, until the end of the block."""

    _memory: Optional[FileMemory]

    def __init__(self, directory: str, layout: Layout, kept: Collection[Optional[str]]) -> None:
        self._set, self._memory = directory, None
        self.tensors: dict[str, torch.Tensor] = {}
        self.directory, self._lock = _directory_new(directory)
        try:
            os.setxattr(self.directory, _MADE, b"gpumem.torch")
            path = os.path.join(self.directory, SINGLE)
            if _memory_of_retired(directory, kept, layout, path):
                self._memory = FileMemory.open(path, os.O_RDWR)
            else:
                self._memory = FileMemory.create(path, layout.size, _native.CREATE_EXCL)
                with open(path, "r+b", buffering=0) as file:
                    file.write(layout.header)
            over = _tensors.storage_over if _tensors.is_reachable(self._memory) else _tensors.storage_for_cpu
            storage = over(self._memory)
            for name, place in layout.places.items():
                self.tensors[name] = _tensors.tensor_at(storage, len(layout.header) + place.begin, place.size,
                                                        place.tensor.dtype, tuple(place.tensor.shape))
        except BaseException:
            self.abandon()
            raise

    def copy_(self, tensors: Union[torch.nn.Module, Mapping[str, torch.Tensor]]) -> None:
        """Copies a module's or a dict's tensors of the same names and shapes, in the current streams, converting types.
        Their source must stay as it is until the end of the block."""
        source = tensors.state_dict() if isinstance(tensors, torch.nn.Module) else tensors
        if source.keys() != self.tensors.keys():
            raise ValueError(f"the version has other tensors: {sorted(source.keys() ^ self.tensors.keys())[:4]}")
        for name, tensor in source.items():
            if tensor.shape != self.tensors[name].shape:
                raise ValueError(f"tensor {name!r} is {tuple(tensor.shape)}, of the version "
                                 f"{tuple(self.tensors[name].shape)}")
        with torch.no_grad():
            for name, tensor in source.items():
                self.tensors[name].copy_(tensor, non_blocking=True)

    def _memory_give(self) -> None:
        """Ends the lease. The tensors become empty: a loop's variable may still be one of them."""
        for tensor in self.tensors.values():
            tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        self.tensors = {}
        left = None if self._memory is None else weakref.ref(self._memory)
        self._memory = None
        if left is not None and left() is not None:
            raise RuntimeError("a view of a tensor of the version is still in use, and could change it when it is "
                               "published: delete it before the end of the block")

    def finish(self, name: str, is_given: bool) -> str:
        """Waits for all work of the GPUs, gives the memory up and the directory its name: that, or the next number that is
        free. The name."""
        assert self._memory is not None
        _tensors.synchronize({tensor.device for tensor in self.tensors.values()})
        if not _tensors.is_reachable(self._memory):
            self._memory.flush()
        self._memory_give()
        while True:
            target = os.path.join(self._set, name)
            try:
                os.mkdir(target)  # rename(2) replaces an empty directory, and no other
                break
            except FileExistsError:
                if is_given:
                    raise
                name = str(int(name) + 1)
        os.rename(self.directory, target)
        return name

    def close(self) -> None:
        """After the publication."""
        os.close(self._lock)

    def abandon(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._memory_give()
        shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)


def file_open(directory: str, name: str, flags: int) -> int:
    """The file of a version, by a name in the set and no link. BlockingIOError, for a moment: a trainer asks the kernel
    who has it."""
    folder = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fd = os.open(SINGLE, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file", os.path.join(directory, name, SINGLE))
    return fd
