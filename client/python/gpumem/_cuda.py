# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The functions of libcuda that are needed beside libgpumem: devices, contexts, copies."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Optional

LIBRARY = "libcuda.so.1"

_SUCCESS, _OUT_OF_MEMORY, _DEVICE_UNAVAILABLE = 0, 2, 46
_INT, _HANDLE, _ADDRESS, _SIZE = ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
_PROTOTYPES: dict[str, list[Any]] = {
    "cuInit": [ctypes.c_uint],
    "cuDeviceGetCount": [ctypes.POINTER(_INT)],
    "cuDeviceGet": [ctypes.POINTER(_INT), _INT],
    "cuDeviceGetUuid_v2": [ctypes.c_char_p, _INT],
    "cuCtxGetCurrent": [ctypes.POINTER(_HANDLE)],
    "cuCtxGetDevice": [ctypes.POINTER(_INT)],
    "cuCtxPushCurrent_v2": [_HANDLE],
    "cuCtxPopCurrent_v2": [ctypes.POINTER(_HANDLE)],
    "cuCtxSynchronize": [],
    "cuDevicePrimaryCtxGetState": [_INT, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(_INT)],
    "cuDevicePrimaryCtxRetain": [ctypes.POINTER(_HANDLE), _INT],
    "cuDevicePrimaryCtxRelease_v2": [_INT],
    "cuMemAlloc_v2": [ctypes.POINTER(_ADDRESS), _SIZE],
    "cuMemFree_v2": [_ADDRESS],
    "cuMemGetAddressRange_v2": [ctypes.POINTER(_ADDRESS), ctypes.POINTER(_SIZE), _ADDRESS],
    "cuMemcpyDtoD_v2": [_ADDRESS, _ADDRESS, _SIZE],
    "cuGetErrorName": [_INT, ctypes.POINTER(ctypes.c_char_p)],
}


class CudaError(RuntimeError):
    """A call of the CUDA driver failed, or no driver is installed."""


@functools.lru_cache(maxsize=None)
def _load(name: str) -> ctypes.CDLL:
    try:
        loaded = ctypes.CDLL(name)
    except OSError as error:
        raise CudaError(f"no CUDA driver: {error}") from None
    for symbol, arguments in _PROTOTYPES.items():
        function = getattr(loaded, symbol)
        function.restype, function.argtypes = ctypes.c_int, arguments
    return loaded


def driver() -> ctypes.CDLL:
    return _load(LIBRARY)


def _check(result: int, call: str) -> None:
    if result == _SUCCESS:
        return
    name = ctypes.c_char_p()
    driver().cuGetErrorName(result, ctypes.byref(name))
    text = f"{call}: {(name.value or str(result).encode()).decode()}"
    if result == _DEVICE_UNAVAILABLE:
        text += (" (in the compute mode EXCLUSIVE_PROCESS one process has the GPU alone: "
                 "nvidia-smi -c DEFAULT)")
    raise MemoryError(text) if result == _OUT_OF_MEMORY else CudaError(text)


def current() -> Optional[int]:
    """The calling thread's current context; None without a context, or if CUDA is not initialised."""
    handle = ctypes.c_void_p()
    if driver().cuCtxGetCurrent(ctypes.byref(handle)) != _SUCCESS:
        return None
    return handle.value


def allocation(address: int) -> tuple[int, int]:
    """Address and size of the allocation at an address, in a thread with a context."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _check(driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address), "cuMemGetAddressRange")
    return base.value, size.value


def current_device() -> int:
    device = ctypes.c_int()
    _check(driver().cuCtxGetDevice(ctypes.byref(device)), "cuCtxGetDevice")
    return device.value


def device_of(uuid: bytes) -> int:
    """CUDA's number of the GPU in this process, which depends on CUDA_VISIBLE_DEVICES."""
    cuda = driver()
    count, device, found = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(16)
    _check(cuda.cuInit(0), "cuInit")
    _check(cuda.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    for ordinal in range(count.value):
        if (cuda.cuDeviceGet(ctypes.byref(device), ordinal) == _SUCCESS
                and cuda.cuDeviceGetUuid_v2(found, device) == _SUCCESS and found.raw == uuid):
            return ordinal
    raise CudaError("the file's GPU is not visible to this process: check "
                    "CUDA_VISIBLE_DEVICES")


def primary_is_active(device: int) -> bool:
    flags, active = ctypes.c_uint(), ctypes.c_int()
    result = driver().cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return result == _SUCCESS and active.value != 0


class Primary:
    """A device's primary context, which frameworks and the CUDA runtime use; retained until
    release(). `with primary:` makes the context current."""

    def __init__(self, device: int) -> None:
        handle = ctypes.c_void_p()
        _check(driver().cuDevicePrimaryCtxRetain(ctypes.byref(handle), device),
               "cuDevicePrimaryCtxRetain")
        self.device, self.handle = device, handle

    def __enter__(self) -> Primary:
        _check(driver().cuCtxPushCurrent_v2(self.handle), "cuCtxPushCurrent")
        return self

    def __exit__(self, *_: object) -> None:
        driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def release(self) -> None:
        driver().cuDevicePrimaryCtxRelease_v2(self.device)


def synchronize() -> None:
    """Waits for all work of the current context."""
    _check(driver().cuCtxSynchronize(), "cuCtxSynchronize")


def allocate(size: int) -> int:
    address = ctypes.c_uint64()
    _check(driver().cuMemAlloc_v2(ctypes.byref(address), size), f"cuMemAlloc of {size} bytes")
    return address.value


def free(address: int) -> None:
    _check(driver().cuMemFree_v2(address), "cuMemFree")


def copy(target: int, source: int, size: int) -> None:
    """Copies inside the GPU, and waits for the copy."""
    _check(driver().cuMemcpyDtoD_v2(target, source, size), "cuMemcpyDtoD")
    synchronize()
