# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Versions of tensors: a trainer publishes, and readers change to the new version between two steps, at the addresses
that they have."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, Optional, Union

import torch

from .. import _header, _native
from .._identity import Identity
from .._memory import FileMemory
from . import _dtypes, _tensors
from ._file import is_trusted, no_view, torch_type
from ._load import SINGLE
from ._new_version import New, is_name, made_anew, memory_of_retired, published, retired_remove

CURRENT = "current"
_TRIES = 8  # the current version may be replaced while it is opened
Path = Union[str, bytes, os.PathLike[Any]]
_Tensors = Union[torch.nn.Module, Mapping[str, torch.Tensor]]


def _templates_of(tensors: _Tensors) -> dict[str, torch.Tensor]:
    """Tensors of the same types and shapes, without memory."""
    made = {}
    for name, tensor in (tensors.state_dict() if isinstance(tensors, torch.nn.Module) else tensors).items():
        if tensor.layout != torch.strided or _dtypes.from_torch(tensor.dtype) is None:
            raise ValueError(f"tensor {name!r} cannot be in a safetensors file: it is {tensor.dtype}, {tensor.layout}")
        made[name] = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return made


def _memory_open(path: str) -> FileMemory:
    """The file's own memory. torch has no read-only tensors, so that memory of the CPU needs write permission."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if is_trusted(fd):
            memory = FileMemory.open(path, os.O_RDONLY)
            if not memory.on_cpu:
                return memory
        return FileMemory.open(path, os.O_RDWR)
    except PermissionError:
        raise no_view(path) from None
    finally:
        os.close(fd)


def _header_of(path: str) -> _header.Header:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        return _header.read(fd, path)
    finally:
        os.close(fd)


class Versions:
    """A set of versions (docs/versions.md): a directory with a directory for each version, which has a file
    model.safetensors, and the link "current" to one of them.

        versions = gpumem.torch.Versions("/mnt/gpumem/gpu0/policy")
        with versions.new(like=model) as new:        # the trainer
            new.copy_(model)
        model = versions.load(model)                 # a reader: its parameters are the file's memory
        name = versions.step()                       # between two steps

    keep: how many earlier versions keep their memory; with 0 the next version is written over the earlier one as soon as
    no process has it."""

    def __init__(self, directory: Path, keep: int = 0) -> None:
        if keep < 0:
            raise ValueError(f"keep is {keep}")
        self.directory, self.keep = os.path.abspath(os.fsdecode(directory)), keep
        self._watch = -1
        self._memory: Optional[FileMemory] = None
        self._header: Optional[_header.Header] = None
        self._name: Optional[str] = None

    @property
    def current(self) -> Optional[str]:
        """The name of the current version; None: nothing was published."""
        try:
            name = os.readlink(os.path.join(self.directory, CURRENT))
        except FileNotFoundError:
            return None
        if not is_name(name):
            raise OSError(errno.ELOOP, "it leads out of the set", os.path.join(self.directory, CURRENT))
        return name

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name, SINGLE)

    # A trainer

    def _next_name(self) -> str:
        numbers = [int(name) for name in os.listdir(self.directory) if name.isdecimal()]
        return str(max(numbers, default=0) + 1)

    @contextlib.contextmanager
    def new(self, like: Optional[_Tensors] = None, name: Optional[str] = None) -> Iterator[New]:
        """A version to write, with uninitialised tensors as those of a module or dict, or of the current version. At the
        end of the block, when the GPUs have done their work, it is published under the name (by default the next
        number); after an exception it is removed. Its tensors are invalid afterwards.

        The memory is that of an earlier version that no process has open, or new memory: where a reader keeps each
        earlier version, as much as versions that are kept and two more. ValueError: the tensors cannot be in a
        safetensors file. OSError: no room, or a name that is taken."""
        name = self._next_name() if name is None else name
        if not is_name(name) or name in (CURRENT, "previous"):
            raise ValueError(f"{name!r} is no name of a version")
        if os.path.lexists(os.path.join(self.directory, name)):
            raise FileExistsError(errno.EEXIST, "the set has such a version", os.path.join(self.directory, name))
        current = self.current
        new = made_anew(self.directory, _templates_of(like) if like is not None else self._templates(),
                        lambda header, size: memory_of_retired(
                            self.directory, {current, *self._kept(current)}, header, size))
        try:
            yield new
            new.finish(name)
        except BaseException:
            new.abandon()
            raise
        _native.check(_native.library().gpumem_version_publish(os.fsencode(self.directory), os.fsencode(name)),
                      self.directory)
        retired_remove(self.directory, {name, *self._kept(name)}, spare=current)

    def _templates(self) -> dict[str, torch.Tensor]:
        """Of the current version."""
        current = self.current
        if current is None:
            raise ValueError("nothing was published yet: say what the version is like")
        path, made = self._path(current), {}
        for name, entry in _header_of(path).tensors.items():
            dtype, shape = torch_type(path, name, entry)
            made[name] = torch.empty(shape, dtype=dtype, device="meta")
        return made

    def _kept(self, current: Optional[str]) -> list[str]:
        """The earlier versions to keep, the last published first."""
        return [] if not self.keep else [name for name in published(self.directory) if name != current][:self.keep]

    # A reader

    def load(self, model: Optional[torch.nn.Module] = None) -> Any:
        """The current version: a dict of tensors, or the model with its parameters and buffers in place of which are
        these tensors. They are the memory of the version's file, which needs user.gpumem.share=trusted or write
        permission.

        FileNotFoundError: nothing was published. ValueError: the model has other tensors."""
        self.close()
        self._watch = _native.library().gpumem_watch(os.fsencode(self.directory))
        if self._watch < 0:
            raise _native.failure(self.directory)
        for _ in range(_TRIES):
            if self._try_load():
                break
        else:
            raise OSError(errno.ESTALE, "the current version is replaced again and again", self.directory)
        assert self._memory is not None and self._header is not None
        storage = _tensors.storage_over(self._memory)
        path, tensors = self._memory.name, {}
        for name, entry in self._header.tensors.items():
            dtype, shape = torch_type(path, name, entry)
            if entry.size and entry.offset % entry.dtype.alignment:
                raise ValueError(f"tensor {name!r} of {path} is not aligned: save it by gpumem.torch")
            tensors[name] = _tensors.tensor_at(storage, entry.offset, entry.size, dtype, shape)
        return tensors if model is None else _assign(model, tensors)

    def _try_load(self) -> bool:
        """False: the version was replaced meanwhile."""
        name = self.current
        if name is None:
            raise FileNotFoundError(errno.ENOENT, "nothing was published", self.directory)
        try:
            header = _header_of(self._path(name))
            memory = _memory_open(self._path(name))
        except FileNotFoundError:
            if self.current == name:
                raise
            return False
        if not self._is_at(memory, name) or memory.size != header.file_size:
            return False
        self._memory, self._header, self._name = memory, header, name
        return True

    def _is_at(self, memory: FileMemory, name: str) -> bool:
        """Whether the file still has its name: otherwise a trainer may be writing the next version over it. The trainer
        looks for readers after it has changed the name, so that one of both sees the other."""
        try:
            found = os.stat(self._path(name), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode) and Identity.of(found) == memory.identity

    def fileno(self) -> int:
        """Readable after another version became current, for select and asyncio. -1 before load()."""
        return self._watch

    def step(self) -> Optional[str]:
        """Changes to the current version if it is another one, at the same addresses, and gives its name. Waits before for
        the GPU's work on the tensors; no other thread may use them meanwhile. A call without a new version asks the
        kernel alone.

        ValueError: the version has other tensors: load() it."""
        if self._memory is None:
            raise ValueError("nothing was loaded")
        changed = _native.library().gpumem_watch_read(self._watch)
        if changed < 0:
            raise _native.failure(self.directory)
        if changed:
            self._switch()
        return self._name

    def _switch(self) -> None:
        memory = self._memory
        assert memory is not None and self._header is not None
        for _ in range(_TRIES):
            name = self.current
            if name is None or (name == self._name and self._is_at(memory, name)):
                return
            with contextlib.suppress(FileNotFoundError):
                if _header_of(self._path(name))[:3] != self._header[:3]:
                    raise ValueError(f"version {name} has other tensors than {self._name}: load() it")
                if not memory.on_cpu:
                    torch.cuda.synchronize(memory.dlpack_device()[1])
                memory.switch(self._path(name))
                self._name = name
                if self._is_at(memory, name):
                    return
        raise OSError(errno.ESTALE, "the current version is replaced again and again", self.directory)

    def close(self) -> None:
        """Ends the watch. Tensors that were loaded stay."""
        if self._watch >= 0:
            os.close(self._watch)
        self._watch, self._memory, self._header, self._name = -1, None, None, None

    def __enter__(self) -> Versions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _assign(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    own = dict(model.state_dict(keep_vars=True))
    if own.keys() != tensors.keys():
        raise ValueError(f"the model has other tensors than the version: {sorted(own.keys() ^ tensors.keys())[:4]}")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape or tensor.dtype != tensors[name].dtype:
            raise ValueError(f"tensor {name!r} of the model is {tensor.dtype} {tuple(tensor.shape)}, of the version "
                             f"{tensors[name].dtype} {tuple(tensors[name].shape)}")
    for name, tensor in own.items():
        tensor.data = tensors[name]
    return model
