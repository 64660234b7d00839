# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""An open safetensors file, and the choice of the memory that its tensors get."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, Optional

import torch

from .. import _header
from .._memory import FileMemory
from . import _dtypes, _tensors
from ._errors import SafetensorError

MODES = ("auto", "view", "copy")
# Tensors are copied together into blocks of about this many bytes, because an allocation of the GPU takes longer than
# a copy; the memory of a block is freed with the last of its tensors.
BLOCK = 1 << 30

# Kernels of GPUs load up to 16 bytes at once. For addresses that do not allow this cuBLAS chooses other kernels, whose
# results may differ in the last bits.
_LOAD_ALIGNMENT = 16

# Called for each tensor that a file gives: with the file's name, "view", "copy" (by a GPU) or "read", the bytes, and
# whether the tensor is aligned for such loads.
observer: Optional[Callable[[str, str, int, bool], None]] = None

_logger = logging.getLogger("gpumem")
_said = False


def device_of(device: Any) -> torch.device:
    """As safetensors reads devices: "cuda" is the first GPU. ValueError: not a device."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{device!r} is not a device: {error}") from None
    return torch.device("cuda", 0) if found.type == "cuda" and found.index is None else found


def _say(name: str, memory: Optional[FileMemory]) -> None:
    global _said
    if _said:
        return
    _said = True
    if memory is None:
        choice = "are read into system memory"
    elif memory.private:
        choice = "are in a private copy of the file, because user.gpumem.share is not 'trusted'"
    else:
        choice = "are views of the file's memory, because user.gpumem.share is 'trusted'"
    _logger.info("%s: mode 'auto': tensors %s", name, choice)


def is_trusted(fd: int) -> bool:
    try:
        return os.getxattr(fd, "user.gpumem.share") == b"trusted"
    except OSError:
        return False


def _no_view(name: str) -> PermissionError:
    return PermissionError(
        errno.EACCES, "no permission to use the file's own memory: ask its owner for write permission or to set "
        "user.gpumem.share=trusted, or load the file with mode='copy'", name)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)


def open_writable(fd: int, name: str) -> int:
    """The same file again, whatever the path leads to by now."""
    try:
        return _open(f"/proc/self/fd/{fd}", os.O_RDWR)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise _no_view(name) from None
        raise


def torch_type(file: str, name: str, entry: _header.Tensor) -> tuple[torch.dtype, tuple[int, ...]]:
    """The type and the shape of a tensor in torch."""
    dtype, shape = _dtypes.to_torch(entry.dtype), entry.shape
    if dtype is None:
        raise SafetensorError(f"{file}: tensor {name!r} has dtype {_dtypes.CODES[entry.dtype.name]}, which "
                              f"torch {torch.__version__} lacks")
    if _dtypes.is_packed(entry.dtype):
        if not shape or shape[-1] % 2:
            raise SafetensorError(f"{file}: tensor {name!r} has dtype F4 and shape {list(shape)}: torch "
                                  "needs an even last dimension")
        shape = (*shape[:-1], shape[-1] // 2)
    return dtype, shape


class File:
    """Slices refer to the file too, so that the descriptor is closed with the last user."""

    def __init__(self, path: Any, mode: str) -> None:
        if mode not in MODES:
            raise ValueError(f"mode is 'auto', 'view' or 'copy', not {mode!r}")
        self.name, self.mode = os.fsdecode(path), mode
        self._fd = _open(self.name, os.O_RDONLY)
        weakref.finalize(self, os.close, self._fd)
        try:
            self.header = _header.read(self._fd, self.name)
        except ValueError as error:
            raise SafetensorError(str(error)) from None
        self._lock = threading.Lock()
        self._is_open, self._storage, self._copies, self._private = False, None, False, False

    def __reduce__(self) -> NoReturn:
        """For pickle and deepcopy, of what safe_open() gives too: the number of a descriptor is another file's in
        another process. safetensors' own are refused as well."""
        raise TypeError(f"{self.name} is open in this process, and cannot be pickled or copied: open the path again")

    def entry(self, name: str) -> _header.Tensor:
        try:
            return self.header.tensors[name]
        except KeyError:
            raise SafetensorError(f"{self.name} does not contain tensor {name!r}") from None

    def torch_type(self, name: str) -> tuple[torch.dtype, tuple[int, ...]]:
        return torch_type(self.name, name, self.entry(name))

    # Memory

    def _writable_memory(self) -> FileMemory:
        fd = open_writable(self._fd, self.name)
        try:
            return FileMemory.open_fd(fd, self.name)
        finally:
            os.close(fd)

    def _lease(self) -> Optional[FileMemory]:
        """The memory for tensors on the file's own GPU, or for views; None if tensors are to be read instead. Views of
        the CPU's memory need write permission: torch has no read-only tensors, and a write to read-only memory would
        end the process."""
        if self.mode == "view" and not is_trusted(self._fd):
            return self._writable_memory()
        memory = FileMemory.open_fd(self._fd, self.name)
        if memory.on_cpu:
            return self._writable_memory() if self.mode == "view" else None
        return memory

    def _memory(self) -> Optional[FileMemory]:
        """_lease() for a file on gpumemfs, checked."""
        try:
            memory = self._lease()
        except OSError as error:
            if error.errno == errno.ENOTSUP and self.mode != "view":
                return None
            raise
        if memory is not None and memory.size != self.header.file_size:
            raise SafetensorError(f"{self.name} changed its size while it was opened")
        if memory is not None and self.mode != "view" and not _tensors.is_mappable(memory):
            return None
        if memory is not None and not _tensors.is_reachable(memory):
            if self.mode == "view":
                raise RuntimeError(f"{self.name} is in a GPU's memory, and torch {torch.__version__} has no CUDA here")
            return None
        return memory

    def _share(self) -> Any:
        """The storage over the file's memory, or None."""
        with self._lock:
            if not self._is_open:
                memory = self._memory()
                if memory is not None:
                    self._storage = _tensors.storage_over(memory)
                    self._copies, self._private = self.mode == "copy" and not memory.private, memory.private
                if self.mode == "auto":
                    _say(self.name, memory)
                self._is_open = True
            return self._storage

    def own_device(self) -> torch.device:
        storage = self._share()
        return torch.device("cpu") if storage is None else torch.device(storage.device)

    def _share_for(self, device: torch.device) -> Any:
        """The storage from which tensors for a device come, or None: tensors for the CPU are read, so that no private
        copy is made on a GPU for them."""
        if device.type == "cpu" and self.mode != "view":
            return None
        storage = self._share()
        return storage if storage is None or device.type != "cpu" or storage.device.type == "cpu" else None

    @contextlib.contextmanager
    def _failures(self, name: str) -> Iterator[None]:
        """Names file and tensor in exceptions."""
        try:
            yield
        except OSError as error:
            raise type(error)(error.errno, f"tensor {name!r}: {error.strerror}", self.name) from error
        except EOFError as error:
            raise SafetensorError(f"{self.name}: tensor {name!r}: {error}") from None
        except RuntimeError as error:
            raise type(error)(f"{self.name}: tensor {name!r}: {error}") from error

    def _manner(self, tensor: torch.Tensor) -> str:
        """How the memory of a tensor was made."""
        storage = self._storage
        if storage is None or (tensor.device.type == "cpu" and storage.device.type != "cpu"):
            return "read"
        first = storage.data_ptr()
        is_inside = tensor.device == storage.device and first <= tensor.data_ptr() < first + storage.nbytes()
        return "view" if is_inside and not self._private else "copy"

    def _observed(self, tensor: torch.Tensor) -> torch.Tensor:
        if observer is not None:
            size = tensor.nelement() * tensor.element_size()
            observer(self.name, self._manner(tensor), size, not size or tensor.data_ptr() % _LOAD_ALIGNMENT == 0)
        return tensor

    # Tensors

    def _read(self, name: str) -> torch.Tensor:
        dtype, shape = self.torch_type(name)
        entry = self.entry(name)
        return _tensors.tensor_at(_tensors.read(self._fd, entry.offset, entry.size), 0, entry.size, dtype, shape)

    def _view(self, storage: Any, name: str, copy: bool) -> torch.Tensor:
        """A tensor in the storage. A tensor that is not aligned for its elements is copied."""
        dtype, shape = self.torch_type(name)
        entry = self.entry(name)
        begin = entry.offset
        if entry.size and (copy or begin % entry.dtype.alignment):
            storage, begin = _tensors.storage_of(_tensors.bytes_at(storage, begin, entry.size).clone()), 0
        return _tensors.tensor_at(storage, begin, entry.size, dtype, shape)

    def tensor(self, name: str, device: Optional[torch.device]) -> torch.Tensor:
        """device: None for the file's own."""
        device = device or self.own_device()
        with self._failures(name):
            storage = self._share_for(device)
            if storage is None:
                return self._observed(self._read(name).to(device))
            return self._observed(self._view(storage, name, self._copies and storage.device == device).to(device))

    def part(self, name: str, index: Any, device: Optional[torch.device],
             dtype: Optional[torch.dtype] = None) -> torch.Tensor:
        """tensor[index]. Only the rows that the index selects are read, and only the part is copied."""
        device = device or self.own_device()
        with self._failures(name):
            storage = self._share_for(device)
            if storage is None:
                return self._observed(self._read_part(name, index).to(device=device, dtype=dtype))
            part = self._view(storage, name, False)[index]
            if storage.device == device and self._copies:
                part = part.clone(memory_format=torch.contiguous_format)
            return self._observed(part.to(device=device, dtype=dtype))

    def _read_part(self, name: str, index: Any) -> torch.Tensor:
        dtype, shape = self.torch_type(name)
        first, *rest = index if isinstance(index, tuple) and index else (index,)
        if not shape or not isinstance(first, slice) or first.step not in (None, 1) or 0 in shape:
            return self._read(name)[index]
        start, stop, _ = first.indices(shape[0])
        entry = self.entry(name)
        row, shape = entry.size // shape[0], (max(stop - start, 0), *shape[1:])
        size = row * shape[0]
        rows = _tensors.read(self._fd, entry.offset + start * row, size)
        return _tensors.tensor_at(rows, 0, size, dtype, shape)[(slice(None), *rest)]

    # Many tensors

    def load(self, wanted: Mapping[str, Optional[torch.device]]) -> dict[str, torch.Tensor]:
        """Tensors by name, each for a device. Types are checked before anything is copied."""
        for name in wanted:
            self.torch_type(name)
        own = self.own_device() if None in wanted.values() else None
        devices = {name: device or own for name, device in wanted.items()}
        made: dict[str, torch.Tensor] = {}
        for device in set(devices.values()):
            assert device is not None
            storage = self._share_for(device)
            if storage is not None and storage.device == device and self._copies:
                made.update(self._load_blocks(storage, [name for name in devices if devices[name] == device]))
        for tensor in made.values():
            self._observed(tensor)
        return {name: made[name] if name in made else self.tensor(name, device) for name, device in devices.items()}

    def _copy_block(self, storage: Any, block: list[str]) -> Any:
        first, last = self.entry(block[0]), self.entry(block[-1])
        with self._failures(block[0]):
            return _tensors.storage_of(
                _tensors.bytes_at(storage, first.offset, last.offset + last.size - first.offset).clone())

    def _load_blocks(self, storage: Any, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """The tensors are made while the GPU copies."""
        blocks = _blocks({name: self.entry(name) for name in names})
        made: dict[str, torch.Tensor] = {}
        for copied, block in [(self._copy_block(storage, block), block) for block in blocks]:
            begin = self.entry(block[0]).offset
            for name in block:
                entry = self.entry(name)
                if (entry.offset - begin) % entry.dtype.alignment:
                    made[name] = self._view(storage, name, True)
                else:
                    made[name] = _tensors.tensor_at(copied, entry.offset - begin, entry.size, *self.torch_type(name))
        return made


def _blocks(entries: Mapping[str, _header.Tensor]) -> list[list[str]]:
    """Names of tensors that follow one another in the file, in groups of about BLOCK bytes."""
    blocks: list[list[str]] = []
    size, end = 0, -1
    for name in sorted(entries, key=lambda name: (entries[name].offset, entries[name].size)):
        entry = entries[name]
        if entry.offset != end or size >= BLOCK:
            blocks.append([])
            size = 0
        blocks[-1].append(name)
        size, end = size + entry.size, entry.offset + entry.size
    return blocks
