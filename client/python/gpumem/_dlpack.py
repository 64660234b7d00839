# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""DLPack capsules: `data` points at the first element (byte_offset is 0), strides are
always set, capsules are legacy ("dltensor") or versioned ("dltensor_versioned").

The structure of a tensor is one block from malloc(3), because a tensor may outlive the interpreter: the deleter
is a function of this module, and from exit on free(3) itself."""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
from collections.abc import Sequence
from typing import Any, Optional

from ._dtypes import Dtype

VERSION = (1, 1)
READ_ONLY, IS_COPIED = 1, 2  # flags


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Legacy(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]
    capsule = b"dltensor"


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]
    capsule = b"dltensor_versioned"


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """A separate prototype, because other modules may have changed the prototypes of ctypes.pythonapi."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_capsule_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_capsule_is = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_keep_forever = _python("Py_IncRef", None, ctypes.py_object)
_malloc = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("malloc", ctypes.pythonapi))
_free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("free", ctypes.pythonapi))

# Consumers read the name of a capsule during the whole life of the capsule.
_names = {kind: ctypes.create_string_buffer(kind.capsule) for kind in (_Legacy, _Versioned)}
_keep_forever(_names)

# By the address of the structure: the object that the tensor keeps alive, and the structure.
_live: dict[int, tuple[object, Any]] = {}
# Capsules not yet known to be consumed. A reference to each is kept here, so that no capsule is destroyed inside a
# consumer that fails with an exception set, where Python code must not run. _sweep() releases the references.
_offered: dict[int, Any] = {}
_calibration = {0: object()}
_ALONE = sys.getrefcount(_calibration.get(0))


def _delete(address: Optional[int], live: dict[int, Any] = _live, offered: dict[int, Any] = _offered,
            free: Any = _free) -> None:
    """The deleter. Called from any thread; the module's globals may be gone, so all names are arguments."""
    kept = live.pop(address, None)
    if kept is not None:
        offered.pop(address, None)
        free(address)


_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_delete)
_keep_forever(_deleter)
_DELETER = ctypes.cast(_deleter, ctypes.c_void_p).value
_FREE = ctypes.cast(_free, ctypes.c_void_p).value


def _sweep() -> None:
    """Releases the capsules that were consumed, and deletes the tensors of capsules that were dropped unused."""
    for address in list(_offered):
        kept = _live.get(address)
        capsule = _offered.get(address)
        if kept is None or capsule is None:
            continue
        taken = not _capsule_is(capsule, kept[1].capsule)
        del capsule
        if taken:
            _offered.pop(address, None)
        elif sys.getrefcount(_offered.get(address)) <= _ALONE:
            _delete(address)


def _after_collection(phase: str, _: object, offered: dict[int, Any] = _offered, sweep: Any = _sweep) -> None:
    if offered and phase == "stop":
        sweep()


gc.callbacks.append(_after_collection)


@atexit.register
def _at_exit() -> None:
    if _after_collection in gc.callbacks:
        gc.callbacks.remove(_after_collection)
    for _, managed in list(_live.values()):
        managed.deleter = _FREE


def strides_of(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous array, in elements."""
    strides = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * max(shape[at + 1], 1)
    return strides


def _fill(tensor: _Tensor, address: int, device: tuple[int, int], dtype: Dtype, shape: Sequence[int],
          numbers: int) -> None:
    ndim = len(shape)
    array = (ctypes.c_int64 * (2 * ndim + 1)).from_address(numbers)
    array[:2 * ndim] = [*shape, *strides_of(shape)]
    tensor.data = address or None
    tensor.device_type, tensor.device_id = device
    tensor.ndim = ndim
    tensor.code, tensor.bits, tensor.lanes = dtype.code, dtype.bits, 1
    tensor.shape, tensor.strides = numbers, numbers + 8 * ndim
    tensor.byte_offset = 0


def capsule(owner: object, address: int, device: tuple[int, int], dtype: Dtype, shape: Sequence[int],
            flags: Optional[int]) -> Any:
    """A capsule that keeps the owner alive until the consumer deletes the tensor. flags: of a
    versioned capsule; None: legacy."""
    _sweep()
    kind = _Legacy if flags is None else _Versioned
    block = _malloc(ctypes.sizeof(kind) + 8 * (2 * len(shape) + 1))
    if not block:
        raise MemoryError("no memory for a DLPack tensor")
    managed = kind.from_address(block)
    managed.manager_ctx, managed.deleter = None, _DELETER
    if flags is not None:
        (managed.major, managed.minor), managed.flags = VERSION, flags
    _fill(managed.tensor, address, device, dtype, shape, block + ctypes.sizeof(kind))
    _live[block] = (owner, managed)
    try:
        made = _capsule_new(block, ctypes.addressof(_names[kind]), None)
    except BaseException:
        _delete(block)
        raise
    _offered[block] = made
    return made
