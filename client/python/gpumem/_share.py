# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Files of arrays that another allocator made."""

from __future__ import annotations

import math
import os
from typing import Any, Union

from . import _native
from ._dlpack import strides_of
from ._memory import FileMemory
from ._views import Buffer

_EXCL, _STAYS = 1, 4  # enum gpumem_share_flags


def _tensor_range(tensor: Any) -> tuple[int, int]:
    if not tensor.is_cuda:
        raise TypeError(f"the tensor is on {tensor.device}, not on a GPU of CUDA")
    if not tensor.is_contiguous():
        raise ValueError("the tensor is not contiguous: share tensor.contiguous(), and keep it")
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def _range(array: Any) -> tuple[int, int]:
    """The device address and the bytes of an array in C order."""
    if hasattr(array, "data_ptr") and hasattr(array, "is_cuda"):
        return _tensor_range(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError(f"{type(array).__name__} is not an array on a GPU: it has no __cuda_array_interface__")
    shape, itemsize = tuple(interface["shape"]), int(interface["typestr"][2:])
    strides = interface.get("strides")
    if strides is not None and list(strides) != [itemsize * stride for stride in strides_of(shape)]:
        raise ValueError("the array is not contiguous in C order")
    return interface["data"][0], itemsize * math.prod(shape)


def share_range(path: Any, address: int, size: int, array: Any, exclusive: bool, stays: bool,
                mode: int = 0o666) -> FileMemory:
    """The memory of a new file, which keeps the array: size bytes from a device address on."""
    name = _native.path_name(path)
    flags = (_EXCL if exclusive else 0) | (_STAYS if stays else 0)
    memory = FileMemory(_native.library().gpumem_share(os.fsencode(name), address, size, mode, flags), name, os.O_RDWR)
    memory.shared = array
    return memory


def share(path: Union[str, bytes, os.PathLike[Any]], array: Any, exclusive: bool = False, stays: bool = False) -> Buffer:
    """Makes a file on gpumemfs whose bytes are those of an array on a GPU, without a copy, and returns the file's
    buffer, which keeps the array.

    array: a torch tensor, or an object with __cuda_array_interface__, contiguous, in an allocation of cudaMalloc, or in
    memory that CUDA exports: with torch PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. path: in the directory of the
    array's GPU. exclusive: True: an existing file is a FileExistsError; False: the new file replaces the existing file.
    stays: True: the file outlives the buffer and the process, with memory that CUDA exports; False: the file ends with
    them, its names are removed, and processes that have mapped the file keep the memory.

    OSError with errno ENOTSUP: memory of cudaMallocAsync, or of cudaMalloc that is to stay, or not on a GPU of CUDA;
    EINVAL: another GPU's memory; EPERM: only root and the user of the daemon share memory; ENOSPC, EDQUOT: no room; and
    the errors of open(). TypeError: not an array on a GPU. ValueError: not contiguous, or empty."""
    address, size = _range(array)
    if not size:
        raise ValueError("the array is empty")
    return Buffer(share_range(path, address, size, array, exclusive, stays))
