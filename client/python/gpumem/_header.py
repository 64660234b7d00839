# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The header of a safetensors file, which libgpumem reads and checks."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from . import _native
from ._dtypes import SAFETENSORS, Dtype

_DTYPES = {code.encode(): dtype for code, dtype in SAFETENSORS.items()}


class Tensor(NamedTuple):
    """offset: in the file. place: of _native.ALIGNED and so on."""

    dtype: Dtype
    shape: tuple[int, ...]
    offset: int
    size: int
    place: int


class Header(NamedTuple):
    """data_start, file_size: in bytes. tensors: in the order of the file's header."""

    data_start: int
    file_size: int
    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def _tensors(native: _native.SafeTensors) -> dict[str, Tensor]:
    return {tensor.name.decode(): Tensor(_DTYPES[tensor.dtype], tuple(tensor.shape[:tensor.rank]), tensor.offset,
                                         tensor.size, tensor.place)
            for tensor in native.tensors[:native.n_tensors]}


def _header(native: _native.SafeTensors) -> Header:
    tensors = _tensors(native)
    file_size = native.data_start + sum(tensor.size for tensor in tensors.values())  # the tensors cover the data
    metadata = {entry.key.decode(): ctypes.string_at(entry.value, entry.value_bytes).decode()
                for entry in native.metadata[:native.n_metadata]}
    return Header(native.data_start, file_size, tensors, metadata)


@contextmanager
def _pointer() -> Iterator[Any]:
    """A pointer that a function of the library sets to a header."""
    pointer = ctypes.POINTER(_native.SafeTensors)()
    try:
        yield pointer
    finally:
        _native.library().gpumem_safetensors_free(pointer)


def check_alignment(alignment: int) -> None:
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"alignment {alignment} is not a power of two")


def _refusal(error: OSError, prefix: str = "") -> Exception:
    return ValueError(f"{prefix}{error.strerror}") if error.errno == errno.EINVAL else error


def read(fd: int, name: str) -> Header:
    """Of an open file. ValueError, with the name, if it is no safetensors file. OSError."""
    with _pointer() as pointer:
        if _native.library().gpumem_safetensors_read(fd, ctypes.byref(pointer)):
            raise _refusal(_native.failure(name), f"{name}: ")
        return _header(pointer.contents)


def align(source: str, target: str, alignment: int) -> Header:
    """Writes source to target with a padded header, and returns that header. ValueError; OSError."""
    with _pointer() as pointer:
        if _native.library().gpumem_align(os.fsencode(source), os.fsencode(target), alignment, ctypes.byref(pointer)):
            raise _refusal(_native.failure(source, target))
        return _header(pointer.contents)
