# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Versions of tensors: a trainer publishes, and readers change to the new version between two steps, at the addresses
that they have."""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import torch

from .. import _header, _native
from .._identity import Identity
from .._memory import FileMemory
from . import _dtypes, _tensors
from ._copies import copy_all
from ._file import is_trusted, open_writable, torch_type
from ._hidden import (CURRENT, PREVIOUS, Hidden, Layout, is_name, layout_of, left_remove, link_read, published,
                      retired_remove, set_check)
from ._load import SINGLE
from ._new_version import New, file_open

_TRIES = 20  # the current version may be replaced while it is opened
Path = Union[str, bytes, os.PathLike[Any]]
_Tensors = Union[torch.nn.Module, Mapping[str, torch.Tensor]]


def _templates_of(tensors: _Tensors) -> dict[str, torch.Tensor]:
    """Tensors of the same types and shapes, without memory."""
    made = {}
    for name, tensor in (tensors.state_dict() if isinstance(tensors, torch.nn.Module) else tensors).items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name!r} is no tensor")
        if tensor.layout != torch.strided or _dtypes.from_torch(tensor.dtype) is None:
            raise ValueError(f"tensor {name!r} cannot be in a safetensors file: it is {tensor.dtype}, {tensor.layout}")
        made[name] = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return made


def _memory_of(fd: int, path: str) -> FileMemory:
    """The file's own memory. torch has no read-only tensors, so that memory of the CPU needs write permission."""
    if is_trusted(fd):
        memory = FileMemory.open_fd(fd, path)
        if not memory.on_cpu:
            return memory
    writable = open_writable(fd, path)
    try:
        return FileMemory.open_fd(writable, path)
    finally:
        os.close(writable)


class Versions:
    """A set of versions (docs/versions.md): a directory with a directory for each version, which has a file
    model.safetensors, and the link "current" to one of them.

        versions = gpumem.torch.Versions("/mnt/gpumem/gpu0/policy")
        with versions.new(like=model) as new:        # the trainer
            new.copy_(model)
        model = versions.load(model)                 # a reader: its parameters are the file's memory
        name = versions.step()                       # between two steps

    keep: how many earlier versions that new() has made keep their memory; with 0 the next version is written over the
    earlier one as soon as no process has it. Versions that were made in other ways are never removed.

    copies: the directories of sets on other GPUs, which new() copies each version to, under the same name. The daemon
    copies; the trainer needs none of these GPUs."""

    def __init__(self, directory: Path, keep: int = 0, copies: Sequence[Path] = ()) -> None:
        if keep < 0:
            raise ValueError(f"keep is {keep}")
        self.directory, self.keep = os.path.abspath(os.fsdecode(directory)), keep
        self._copies = [Versions(copy, keep) for copy in copies]
        self._watch, self._closing = -1, lambda: None
        self._before: Optional[str] = None  # the current version when new() began
        self._memory: Optional[FileMemory] = None
        self._header: Optional[_header.Header] = None
        self._name: Optional[str] = None
        self._is_late = False  # another version became current, and is not mapped yet

    @property
    def current(self) -> Optional[str]:
        """The name of the current version; None: nothing was published."""
        return link_read(self.directory, CURRENT)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name, SINGLE)

    # A trainer

    def _next_name(self) -> str:
        numbers = [int(name) for each in (self, *self._copies) for name in os.listdir(each.directory) if name.isdecimal()]
        return str(max(numbers, default=0) + 1)

    @contextlib.contextmanager
    def new(self, like: Optional[_Tensors] = None, name: Optional[str] = None) -> Iterator[New]:
        """A version to write, with uninitialised tensors as those of a module or dict, or of the current version. At the
        end of the block, when the GPUs have done all work, it is published under the name (by default the next number);
        after an exception it is removed. Its tensors are empty afterwards.

        The memory is that of an earlier version that no process has, or new memory: while a reader keeps its version, that
        of all that are kept and two more. ValueError: the tensors cannot be in a safetensors file. RuntimeError: a view
        of a tensor is kept beyond the block. OSError: no room, or a name that is taken."""
        if name is not None and (not is_name(name) or name in (CURRENT, PREVIOUS)):
            raise ValueError(f"{name!r} is no name of a version")
        for each in (self, *self._copies):
            if name is not None and os.path.lexists(os.path.join(each.directory, name)):
                raise FileExistsError(errno.EEXIST, "the set has such a version", os.path.join(each.directory, name))
        layout = layout_of(_templates_of(like) if like is not None else self._templates())
        for each in (self, *self._copies):
            set_check(each.directory)
            left_remove(each.directory)
        with contextlib.ExitStack() as unpublished:
            hidden = self._hide(layout, unpublished)
            new = New(hidden, layout)
            unpublished.callback(new.abandon)
            yield new
            new.finish()
            copies = [each._hide(layout, unpublished) for each in self._copies]
            copy_all(hidden.path, copies)
            made = self._show(hidden, name)
            for copy in copies:
                copy.show(made)
            unpublished.pop_all()
        try:
            for each in (self, *self._copies):
                each._publish(made)
        finally:
            for shown in (hidden, *copies):
                shown.close()
        for each in (self, *self._copies):
            each._retire(made)

    def _hide(self, layout: Layout, unpublished: contextlib.ExitStack) -> Hidden:
        self._before = self.current
        hidden = Hidden(self.directory, layout, {self._before, *self._kept(self._before)})
        unpublished.callback(hidden.abandon)
        return hidden

    def _show(self, hidden: Hidden, name: Optional[str]) -> str:
        """The version's name: that, or the next number that is free."""
        made = name or self._next_name()
        while True:
            try:
                hidden.show(made)
                return made
            except FileExistsError:
                if name is not None:
                    raise
                made = str(int(made) + 1)

    def _publish(self, name: str) -> None:
        _native.check(_native.library().gpumem_version_publish(os.fsencode(self.directory), os.fsencode(name)),
                      self.directory)

    def _retire(self, made: str) -> None:
        """The one before is not removed: the next version gets its memory."""
        retired_remove(self.directory, {made, self._before, *self._kept(made)})

    def _templates(self) -> dict[str, torch.Tensor]:
        """Of the current version."""
        current = self.current
        if current is None:
            raise ValueError("nothing was published yet: say what the version is like")
        made = {}
        for name, entry in self._header_of(current).tensors.items():
            dtype, shape = torch_type(self._path(current), name, entry)
            made[name] = torch.empty(shape, dtype=dtype, device="meta")
        return made

    def _kept(self, current: Optional[str]) -> list[str]:
        """The earlier versions to keep, the last published first."""
        return [] if not self.keep else [name for name in published(self.directory) if name != current][:self.keep]

    # A reader

    def _header_of(self, name: str) -> _header.Header:
        fd = file_open(self.directory, name, os.O_RDONLY)
        try:
            return _header.read(fd, self._path(name))
        finally:
            os.close(fd)

    def load(self, model: Optional[torch.nn.Module] = None) -> Any:
        """The current version: a dict of tensors, or the model, whose parameters and buffers these tensors become. They
        are the memory of the version's file, which needs user.gpumem.share=trusted or write permission: with that, writing
        to one changes the version for all readers.

        FileNotFoundError: nothing was published. ValueError: the model has other tensors."""
        self.close()
        self._watch = _native.library().gpumem_watch(os.fsencode(self.directory))
        if self._watch < 0:
            raise _native.failure(self.directory)
        self._closing = weakref.finalize(self, os.close, self._watch)
        self._again(self._try_load)
        assert self._memory is not None and self._header is not None and self._name is not None
        storage = _tensors.storage_over(self._memory)
        path, tensors = self._path(self._name), {}
        for name, entry in self._header.tensors.items():
            dtype, shape = torch_type(path, name, entry)
            if entry.size and entry.offset % entry.dtype.alignment:
                raise ValueError(f"tensor {name!r} of {path} is not aligned: save it by gpumem.torch")
            tensors[name] = _tensors.tensor_at(storage, entry.offset, entry.size, dtype, shape)
        return tensors if model is None else _assign(model, tensors)

    def _again(self, attempt: Any) -> None:
        """Until an attempt succeeds: a version may be replaced while it is opened, and a trainer asks who has it."""
        for _ in range(_TRIES):
            name = self.current
            if name is None:
                raise FileNotFoundError(errno.ENOENT, "nothing was published", self.directory)
            try:
                if attempt(name):
                    return
            except (FileNotFoundError, BlockingIOError):
                pass
        raise OSError(errno.ESTALE, "the current version is replaced again and again, or is not there", self.directory)

    def _try_load(self, name: str) -> bool:
        """False: the version was replaced meanwhile."""
        fd = file_open(self.directory, name, os.O_RDONLY)
        try:
            header, memory = _header.read(fd, self._path(name)), _memory_of(fd, self._path(name))
        finally:
            os.close(fd)
        if not self._is_at(memory, name) or memory.size != header.file_size:
            return False
        self._memory, self._header, self._name = memory, header, name
        return True

    def _is_at(self, memory: FileMemory, name: str) -> bool:
        """Whether the file still has its name: otherwise a trainer may be writing the next version over it. The trainer
        looks for readers after it has taken the name away, so that one of both sees the other."""
        try:
            fd = file_open(self.directory, name, os.O_PATH)
        except FileNotFoundError:
            return False
        try:
            return Identity.of(os.fstat(fd)) == memory.identity
        finally:
            os.close(fd)

    def fileno(self) -> int:
        """Readable after another version became current, for select and asyncio. -1 before load()."""
        return self._watch

    def step(self, to: Optional[str] = None) -> str:
        """Changes to the current version if it is another one, or to the version of a name, at the same addresses, and
        gives its name. Waits before for the GPU's work on the tensors; no other thread may use them meanwhile. A call
        without a new version asks the kernel alone. Processes that compute together call step(to=name) with the name that
        one of them has chosen.

        After an error the next call tries again. ValueError: the version has other tensors: load() it."""
        if self._memory is None or self._name is None:
            raise ValueError("nothing was loaded")
        if to is not None:
            self._is_late = True
            self._again(lambda _current: self._try_switch(to))
            self._is_late = False
            return self._name
        changed = _native.library().gpumem_watch_read(self._watch)
        if changed < 0:
            raise _native.failure(self.directory)
        self._is_late |= bool(changed)
        if self._is_late:
            self._again(self._try_switch)
            self._is_late = False
        return self._name

    def _try_switch(self, name: str) -> bool:
        memory = self._memory
        assert memory is not None and self._header is not None
        if name == self._name and self._is_at(memory, name):
            return True
        fd = file_open(self.directory, name, os.O_RDONLY)
        try:
            if _header.read(fd, self._path(name))[:3] != self._header[:3]:
                raise ValueError(f"version {name} has other tensors than {self._name}: load() it")
            if not memory.on_cpu:
                torch.cuda.synchronize(memory.dlpack_device()[1])
            memory.switch(f"/proc/self/fd/{fd}", self._path(name))
        finally:
            os.close(fd)
        if not self._is_at(memory, name):
            return False
        self._name = name
        return True

    def close(self) -> None:
        """Ends the watch. Tensors that were loaded stay."""
        self._closing()
        self._watch, self._closing = -1, lambda: None
        self._memory, self._header, self._name, self._is_late = None, None, None, False

    def __enter__(self) -> Versions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _owned(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers by all of their names. A state_dict may have other tensors."""
    found = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for own in (module._parameters, module._buffers):
            found.update((f"{prefix}.{name}" if prefix else name, tensor)
                         for name, tensor in own.items() if tensor is not None)
    return found


def _assign(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    own = _owned(model)
    if model.state_dict().keys() != tensors.keys() or not tensors.keys() <= own.keys():
        other = model.state_dict().keys() ^ tensors.keys() or tensors.keys() - own.keys()
        raise ValueError(f"the model has other parameters and buffers than the version: {sorted(other)[:4]}")
    for name, tensor in tensors.items():
        if own[name].is_meta or own[name].shape != tensor.shape or own[name].dtype != tensor.dtype:
            raise ValueError(f"tensor {name!r} of the model is {own[name].dtype} {tuple(own[name].shape)} on "
                             f"{own[name].device}, of the version {tensor.dtype} {tuple(tensor.shape)}")
    for name, tensor in tensors.items():
        own[name].data = tensor
    return model
