# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A version under way: a hidden directory of the set until it is published, with the memory of an earlier version if
no process has that."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from typing import Optional, Union

import torch

from .. import _native
from .._memory import FileMemory
from . import _save, _tensors
from ._load import SINGLE

_ALIGNMENT = 256  # as of save_file()


class New:
    """directory: for further files of the version. tensors: the file's memory, by name."""

    def __init__(self, folder: str, memory: FileMemory, tensors: dict[str, torch.Tensor]) -> None:
        self.directory, self.tensors = folder, tensors
        self._memory: Optional[FileMemory] = memory

    def copy_(self, tensors: Union[torch.nn.Module, Mapping[str, torch.Tensor]]) -> None:
        """Copies a module's or a dict's tensors of the same names, in the current streams."""
        source = tensors.state_dict() if isinstance(tensors, torch.nn.Module) else tensors
        if source.keys() != self.tensors.keys():
            raise ValueError(f"the version has other tensors: {sorted(source.keys() ^ self.tensors.keys())[:4]}")
        with torch.no_grad():
            for name, tensor in source.items():
                self.tensors[name].copy_(tensor, non_blocking=True)

    def finish(self, name: str) -> None:
        """Waits for the copies, ends the lease, and gives the directory its name."""
        assert self._memory is not None
        devices = {tensor.device for tensor in self.tensors.values()}
        _tensors.synchronize(devices)
        if not _tensors.is_reachable(self._memory):
            self._memory.flush()
        self.tensors, self._memory = {}, None
        target = os.path.join(os.path.dirname(self.directory), name)
        os.mkdir(target)  # rename(2) replaces an empty directory, and no other
        os.rename(self.directory, target)
        self.directory = target

    def abandon(self) -> None:
        self.tensors, self._memory = {}, None
        if os.path.basename(self.directory).startswith("."):
            shutil.rmtree(self.directory, ignore_errors=True)


def _is_alone(path: str) -> bool:
    """Whether no process has the file open, which the kernel knows: it grants a lease (fcntl(2)) to write only then. A
    process that has mapped the file, by libgpumem or mmap(2), has it open."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _has_header(path: str, header: bytes, size: int) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.fstat(fd).st_size == size and os.pread(fd, len(header), 0) == header
    finally:
        os.close(fd)


def _hidden(directory: str) -> str:
    return os.path.join(directory, f".new-{secrets.token_hex(8)}")


def _taken(directory: str, name: str, header: bytes, size: int) -> Optional[str]:
    """The hidden directory that the version has become; None: it has other tensors, or a process has it open. First it
    loses its name, then its users are looked for: a reader looks for the name when it has the file open."""
    folder, hidden = os.path.join(directory, name), _hidden(directory)
    if not _has_header(os.path.join(folder, SINGLE), header, size):
        return None
    os.rename(folder, hidden)
    if _is_alone(os.path.join(hidden, SINGLE)):
        return hidden
    os.rename(hidden, folder)
    return None


def is_name(name: str) -> bool:
    return name != "" and "/" not in name and not name.startswith(".")


def published(directory: str) -> list[str]:
    """The versions that were published and are there, the last published first."""
    found = []
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if is_name(name) and not os.path.islink(path):
            with contextlib.suppress(OSError, ValueError):
                found.append((int(os.getxattr(path, "user.versions.published", follow_symlinks=False)), name))
    return [name for _, name in sorted(found, reverse=True)]


def memory_of_retired(directory: str, kept: set[Optional[str]], header: bytes, size: int) -> Optional[str]:
    """The hidden directory with the file of an earlier version, the oldest first, for a version of this header."""
    for name in reversed(published(directory)):
        if name not in kept:
            with contextlib.suppress(OSError):
                folder = _taken(directory, name, header, size)
                if folder is not None:
                    _previous_forget(directory, name)
                    return folder
    return None


def _previous_forget(directory: str, name: str) -> None:
    """There is no way back to a version whose memory was taken."""
    link = os.path.join(directory, "previous")
    with contextlib.suppress(OSError):
        if os.readlink(link) == name:
            os.unlink(link)


def made_anew(directory: str, tensors: Mapping[str, torch.Tensor],
              retired: Callable[[bytes, int], Optional[str]]) -> New:
    places = _save._layout(tensors, _ALIGNMENT)
    header = _save._pack_header(places, None, _ALIGNMENT)
    size = len(header) + sum(place.size for place in places.values())
    folder = retired(header, size)
    is_new = folder is None
    if folder is None:
        folder = _hidden(directory)
        os.mkdir(folder)
    try:
        memory = _memory(os.path.join(folder, SINGLE), header, size, is_new)
        storage = (_tensors.storage_over if _tensors.is_reachable(memory) else _tensors.storage_for_cpu)(memory)
        made = {name: _tensors.tensor_at(storage, len(header) + place.begin, place.size, place.tensor.dtype,
                                         tuple(place.tensor.shape)) for name, place in places.items()}
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return New(folder, memory, made)


def _memory(path: str, header: bytes, size: int, is_new: bool) -> FileMemory:
    if not is_new:
        with contextlib.suppress(OSError):
            os.removexattr(os.path.dirname(path), "user.versions.published")
        return FileMemory.open(path, os.O_RDWR)
    memory = FileMemory.create(path, size, _native.CREATE_EXCL)
    with open(path, "r+b", buffering=0) as file:
        file.write(header)
    return memory


def retired_remove(directory: str, kept: set[str], spare: Optional[str]) -> None:
    """Removes published versions that are neither kept nor the spare one, whose memory the next version gets, unless a
    process has them open."""
    for name in published(directory):
        folder = os.path.join(directory, name)
        if name not in kept and name != spare:
            with contextlib.suppress(OSError):
                if _is_alone(os.path.join(folder, SINGLE)):
                    shutil.rmtree(folder)
