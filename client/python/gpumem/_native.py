# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""libgpumem.so.0 through ctypes."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import Any, Optional

KIND_DEVICE, KIND_HOST, KIND_SIMULATED, KIND_VULKAN = 1, 2, 3, 4
INFO_PRIVATE, INFO_READ_ONLY = 1, 2
ALIGNED, VIEWABLE, MISALIGNED = 1, 2, 3
CREATE_EXCL, CREATE_PENDING = 1, 2
OPEN_TIMED = 1 << 30
EXPORT_FOR_READING = 1


class Info(ctypes.Structure):
    """struct gpumem_info of gpumem.h."""

    _fields_ = [
        ("bytes", ctypes.c_size_t),
        ("size", ctypes.c_uint64),
        ("mappable", ctypes.c_uint64),
        ("mapped", ctypes.c_uint64),
        ("host_mapped", ctypes.c_uint64),
        ("n_chunks", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("uuid", ctypes.c_uint8 * 16),
        ("provider", ctypes.c_char * 12),
        ("driver", ctypes.c_char * 12),
        ("number", ctypes.c_int32),
        ("filesystem", ctypes.c_uint64),
        ("inode", ctypes.c_uint64),
    ]


class Piece(ctypes.Structure):
    """struct gpumem_piece."""

    _fields_ = [
        ("offset", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("memory_offset", ctypes.c_uint64),
        ("memory_bytes", ctypes.c_uint64),
        ("handles", ctypes.c_uint32),
        ("fd", ctypes.c_int),
        ("uuid", ctypes.c_uint8 * 16),
        ("reserved", ctypes.c_uint64),
    ]


class Tensor(ctypes.Structure):
    """struct gpumem_tensor."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_uint64)),
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("rank", ctypes.c_uint32),
        ("unit", ctypes.c_uint32),
        ("place", ctypes.c_uint32),
    ]


class Metadata(ctypes.Structure):
    """struct gpumem_metadata."""

    _fields_ = [
        ("key", ctypes.c_char_p),
        ("value", ctypes.c_void_p),
        ("value_bytes", ctypes.c_size_t),
    ]


class SafeTensors(ctypes.Structure):
    """struct gpumem_safetensors."""

    _fields_ = [
        ("data_start", ctypes.c_uint64),
        ("n_tensors", ctypes.c_size_t),
        ("tensors", ctypes.POINTER(Tensor)),
        ("n_metadata", ctypes.c_size_t),
        ("metadata", ctypes.POINTER(Metadata)),
    ]


PressureFunction = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint, ctypes.c_void_p)
EndFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def _prototypes() -> dict[str, tuple[Any, list[Any]]]:
    handle, size, header = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(SafeTensors)
    return {
        "gpumem_open": (handle, [ctypes.c_char_p, ctypes.c_int]),
        "gpumem_open_fd": (handle, [ctypes.c_int]),
        "gpumem_create": (handle, [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int]),
        "gpumem_share": (
            handle, [ctypes.c_char_p, ctypes.c_ulonglong, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int]),
        "gpumem_on_end": (ctypes.c_int, [handle, EndFunction, ctypes.c_void_p]),
        "gpumem_end_fd": (ctypes.c_int, [handle]),
        "gpumem_timeline_create": (handle, [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int]),
        "gpumem_timeline_open": (handle, [ctypes.c_char_p]),
        "gpumem_timeline_signal": (ctypes.c_int, [handle, ctypes.c_size_t, handle, ctypes.c_uint64]),
        "gpumem_timeline_signal_host": (ctypes.c_int, [handle, ctypes.c_size_t, ctypes.c_uint64]),
        "gpumem_timeline_wait": (ctypes.c_int, [handle, ctypes.c_size_t, handle, ctypes.c_uint64]),
        "gpumem_timeline_wait_host": (ctypes.c_int, [handle, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int64]),
        "gpumem_timeline_value": (ctypes.c_int, [handle, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64)]),
        "gpumem_timeline_check": (ctypes.c_int, [handle]),
        "gpumem_timeline_close": (ctypes.c_int, [handle]),
        "gpumem_publish": (ctypes.c_int, [handle]),
        "gpumem_close": (ctypes.c_int, [handle]),
        "gpumem_get_info": (ctypes.c_int, [handle, ctypes.POINTER(Info)]),
        "gpumem_map_device": (ctypes.c_int, [handle, ctypes.POINTER(ctypes.c_ulonglong), size]),
        "gpumem_map_host": (ctypes.c_int, [handle, ctypes.POINTER(ctypes.c_void_p), size]),
        "gpumem_export": (ctypes.c_int, [handle, ctypes.c_int, ctypes.POINTER(Piece), size]),
        "gpumem_extend": (ctypes.c_int, [handle]),
        "gpumem_flush": (ctypes.c_int, [handle]),
        "gpumem_park": (ctypes.c_int, [handle]),
        "gpumem_unpark": (ctypes.c_int, [handle]),
        "gpumem_version_publish": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_char_p]),
        "gpumem_watch": (ctypes.c_int, [ctypes.c_char_p]),
        "gpumem_watch_read": (ctypes.c_int, [ctypes.c_int]),
        "gpumem_switch": (
            ctypes.c_int, [ctypes.POINTER(handle), ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]),
        "gpumem_safe_point": (ctypes.c_int, []),
        "gpumem_on_pressure": (ctypes.c_int, [PressureFunction, ctypes.c_void_p]),
        "gpumem_drop_leases": (ctypes.c_int, [ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64)]),
        "gpumem_safetensors_read": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(header)]),
        "gpumem_safetensors_free": (None, [header]),
        "gpumem_align": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(header)]),
        "gpumem_error": (ctypes.c_char_p, []),
    }


def packaged(name: str) -> str:
    """The path of a file in the package's own folder, where a wheel has it, or else the file's name alone."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    return path if os.path.exists(path) else os.path.basename(name)


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The library, loaded when first needed. OSError (ENOENT) where there is none."""
    name = os.environ.get("GPUMEM_LIBRARY") or packaged("libgpumem.so.0")
    try:
        loaded = ctypes.CDLL(name, use_errno=True)
    except OSError as error:
        raise OSError(errno.ENOENT, f"cannot load {name}: {error}; install gpumemfs, or name the "
                      "library in GPUMEM_LIBRARY") from None
    for symbol, (result, arguments) in _prototypes().items():
        function = getattr(loaded, symbol)
        function.restype, function.argtypes = result, arguments
    return loaded


def path_name(path: Any) -> str:
    """A path as the library is to get it. ValueError: the library would take it to end at the NUL."""
    name = os.fsdecode(path)
    if "\0" in name:
        raise ValueError("a path cannot contain NUL")
    return name


def failure(path: Optional[str] = None, target: Optional[str] = None) -> OSError:
    """The exception for this thread's call that has just failed."""
    number = ctypes.get_errno()
    text = (library().gpumem_error() or b"").decode(errors="replace") or os.strerror(number)
    # An OSError with a path ends with it.
    return OSError(number, text.removeprefix(f"{path}: "), path, None, target)


def check(result: int, path: Optional[str] = None) -> None:
    if result:
        raise failure(path)
