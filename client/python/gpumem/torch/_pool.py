# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Memory of torch in files: a torch.cuda.MemPool whose segments lie in one growing file for each GPU."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import weakref
from typing import Any, NoReturn, Optional

import torch

from .. import _native, _views

_PATH_MAX = 4096


class _Functions(ctypes.Structure):
    """struct gpumem_torch of gpumem.h."""

    _fields_ = [("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p)]


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL:
    library = _native.library()
    library.gpumem_torch_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(_Functions)]
    for name in ("close", "park", "unpark"):
        getattr(library, f"gpumem_torch_{name}").argtypes = [ctypes.POINTER(_Functions)]
    library.gpumem_arena_find.argtypes = [ctypes.c_ulonglong, ctypes.c_char_p, ctypes.c_size_t,
                                          ctypes.POINTER(ctypes.c_uint64)]
    return library


# torch calls the allocator of a segment as long as the segment exists, which may be longer than the pool does.
@functools.lru_cache(maxsize=None)
def _allocator(alloc: int, free: int) -> Any:
    return torch._C._cuda_customAllocator(alloc, free)


def _close(functions: _Functions) -> None:
    _library().gpumem_torch_close(ctypes.byref(functions))


def park(functions: Optional[_Functions] = None) -> None:
    """Parks a pool, or without functions all pools of this process."""
    _native.check(_library().gpumem_torch_park(functions and ctypes.byref(functions)))


def unpark(functions: Optional[_Functions] = None) -> str:
    """The opposite: "", or the message that a file was changed meanwhile."""
    changed = _library().gpumem_torch_unpark(functions and ctypes.byref(functions))
    _native.check(min(changed, 0))
    return (_native.library().gpumem_error() or b"").decode(errors="replace") if changed else ""


class _Parks:
    """What a pool has beside torch.cuda.MemPool, which old versions of torch lack."""

    _functions: _Functions

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """For pickle and copy."""
        raise TypeError("a pool allocates for torch in this process, and cannot be pickled or copied: send pool_place() "
                        "of a tensor")

    def park(self) -> None:
        """Waits for the GPU, and gives the memory back for a while, with its addresses kept: see Buffer.park(). Meanwhile no
        tensor in the pool may be used or made."""
        park(self._functions)

    def unpark(self) -> bool:
        """Maps the memory again at the same addresses. Whether a file of the pool was changed meanwhile."""
        return bool(unpark(self._functions))

    def parked(self) -> contextlib.AbstractContextManager[Any]:
        """park() for a while: `with pool.parked(): ...`."""
        return _views.parked(self)


@functools.lru_cache(maxsize=None)
def _pool_type(mempool: type) -> type:
    class Pool(_Parks, mempool):  # type: ignore[misc, valid-type]
        pass
    return Pool


def pool(directory: Any, name: Optional[str] = None) -> Any:
    """A torch.cuda.MemPool whose memory lies in a file below the directory.

        kept = gpumem.torch.pool("/mnt/gpumem")
        with torch.cuda.use_mem_pool(kept):
            cache = torch.zeros(shape, device="cuda")
        path, offset = gpumem.torch.pool_place(cache)
        with kept.parked(): ...  # as a Buffer, with park() and unpark()

    directory: of the current device's memory, or the root of a mount with all devices that are used. name: of the file,
    which must not exist; without it torch-PROCESS-DEVICE-N. The file grows with torch's segments. It is removed when
    pool and tensors are gone, or with the process, unless its attribute user.gpumem.persist is "restart" or "disk".

    A GPU without room is torch.OutOfMemoryError, as ever; every other failure to open the file is OSError.
    """
    if not hasattr(torch.cuda, "MemPool"):
        raise RuntimeError(f"torch {torch.__version__} has no torch.cuda.MemPool: 2.5 or later is needed")
    torch.cuda.init()
    path, functions = _native.path_name(directory), _Functions()
    _native.check(_library().gpumem_torch_open(os.fsencode(path), os.fsencode(_native.path_name(name)) if name else None,
                                               torch.cuda.current_device(), ctypes.byref(functions)), path)
    try:
        made = _pool_type(torch.cuda.MemPool)(_allocator(functions.alloc, functions.free))
        made._functions = functions
    except BaseException:
        _close(functions)
        raise
    # At the end of the process the library removes the file; tensors may be in use until then.
    weakref.finalize(made, _close, functions).atexit = False
    return made


def pool_place(tensor: Any) -> tuple[str, int]:
    """The file of a tensor in a pool, and the offset of the tensor's first byte there. Another process maps the tensor
    with gpumem.open(path, "r+").view(dtype, shape, offset). FileNotFoundError: the tensor lies in no pool."""
    path, offset = ctypes.create_string_buffer(_PATH_MAX), ctypes.c_uint64()
    _native.check(_library().gpumem_arena_find(tensor.data_ptr(), path, len(path), ctypes.byref(offset)))
    return os.fsdecode(path.value), offset.value
