# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A version under way: the tensors that the trainer writes, in a directory that is hidden until it is published."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import weakref
from collections.abc import Mapping
from typing import Optional, Union

import torch

from .. import _native
from .._memory import FileMemory
from . import _tensors
from ._hidden import Hidden, Layout
from ._load import SINGLE


class New:
    """directory: for further files of the version. tensors: the file's memory, by name, until the end of the block."""

    _memory: Optional[FileMemory]

    def __init__(self, hidden: Hidden, layout: Layout) -> None:
        self._hidden, self._memory = hidden, None
        self.tensors: dict[str, torch.Tensor] = {}
        if hidden.has_memory:
            self._memory = FileMemory.open(hidden.file, os.O_RDWR)
        else:
            self._memory = FileMemory.create(hidden.file, layout.size, _native.CREATE_EXCL)
            with open(hidden.file, "r+b", buffering=0) as file:
                file.write(layout.header)
        over = _tensors.storage_over if _tensors.is_reachable(self._memory) else _tensors.storage_for_cpu
        storage = over(self._memory)
        for name, place in layout.places.items():
            self.tensors[name] = _tensors.tensor_at(storage, len(layout.header) + place.begin, place.size,
                                                    place.tensor.dtype, tuple(place.tensor.shape))

    @property
    def directory(self) -> str:
        return self._hidden.path

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

    def finish(self) -> None:
        """Waits for all work of the GPUs, and gives the memory up."""
        assert self._memory is not None
        _tensors.synchronize({tensor.device for tensor in self.tensors.values()})
        if not _tensors.is_reachable(self._memory):
            self._memory.flush()
        self._memory_give()

    def abandon(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._memory_give()


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
