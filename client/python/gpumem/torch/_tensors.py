# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Tensors at a place of a storage. Each tensor has a storage of its own, which keeps the whole storage alive, because
safetensors.torch.save_model, torch.save and transformers take tensors of one storage for tied weights."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.utils.dlpack

from .. import _dlpack
from .._dtypes import UINT8
from .._memory import CPU, FileMemory, Memory


def storage_of(tensor: torch.Tensor) -> Any:
    """The storage in bytes; torch before 2.0 has another name."""
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage().untyped()


def is_reachable(memory: Memory) -> bool:
    """Whether torch can use the memory: torch may have been built without CUDA."""
    return memory.on_cpu or torch.cuda.is_available()


def is_mappable(memory: FileMemory) -> bool:
    """Whether a driver maps memory that another interface allocated: files of several chunks are not mapped."""
    if memory.imported and memory.size:
        try:
            memory.dlpack_address()
        except OSError:
            return False
    return True


def storage_at(memory: Any, address: int, device: tuple[int, int]) -> Any:
    """A storage of memory.size bytes from an address on, which keeps the memory alive. Neither legacy DLPack nor torch can
    say that memory is read-only, so the caller must not offer read-only memory of the CPU: a write would end the
    process."""
    capsule = _dlpack.capsule(memory, address, device, UINT8, (memory.size,), None)
    return storage_of(torch.utils.dlpack.from_dlpack(capsule))


def storage_over(memory: Memory) -> Any:
    """A storage over all bytes, which keeps the memory alive."""
    return storage_at(memory, memory.dlpack_address(), memory.dlpack_device())


def storage_for_cpu(memory: Memory) -> Any:
    """The same for the CPU: of a GPU's memory through the GPU's BAR, only to be written."""
    return storage_at(memory, memory.host_address(), (CPU, 0))


def tensor_at(storage: Any, begin: int, size: int, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """The tensor whose size bytes begin at a byte of the storage, which must be aligned for the type."""
    tensor = torch.empty(0 if size else tuple(shape), dtype=dtype, device=storage.device)
    if not size:
        return tensor
    return tensor.set_(storage[begin:begin + size], 0, tuple(shape), tuple(_dlpack.strides_of(shape)))


def bytes_at(storage: Any, begin: int, size: int) -> torch.Tensor:
    return tensor_at(storage, begin, size, torch.uint8, (size,))


def synchronize(devices: Iterable[torch.device]) -> None:
    """Waits for the copies on the devices, so that a failure is reported here."""
    for device in set(devices):
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def read(fd: int, begin: int, size: int) -> Any:
    """A storage in system memory with size bytes of a file from begin on. OSError. EOFError: the file has fewer."""
    tensor = torch.empty(size, dtype=torch.uint8, device="cpu")
    room = memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B") if size else b""
    done = 0
    while done < size:
        count = os.preadv(fd, [room[done:]], begin + done)
        if not count:
            raise EOFError(f"the file ends at byte {begin + done}")
        done += count
    return storage_of(tensor)
