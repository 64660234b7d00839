# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""What views lie in: the memory of a file, or a copy. It goes when nothing refers to it any more."""

from __future__ import annotations

import contextlib
import ctypes
import os
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, Optional

from . import _cuda, _native

CPU, CUDA = 1, 2  # DLDeviceType


class Memory:
    """size: in bytes. on_cpu: system memory, addressed by host_address(); else a GPU's. Either address
    is good for as long as the object lives."""

    size: int
    read_only: bool
    on_cpu: bool
    name: str

    def device_address(self) -> int:
        """For the calling thread's current CUDA context."""
        raise NotImplementedError

    def host_address(self) -> int:
        raise NotImplementedError

    def dlpack_device(self) -> tuple[int, int]:
        raise NotImplementedError

    def dlpack_address(self) -> int:
        """On dlpack_device()."""
        raise NotImplementedError

    def bytes(self, offset: int, size: int) -> memoryview:
        """Of the CPU's mapping; keeps this object alive."""
        if not size:
            return memoryview(b"" if self.read_only else bytearray())
        array: Any = (ctypes.c_ubyte * size).from_address(self.host_address() + offset)
        array.memory = self
        view = memoryview(array).cast("B")
        return view.toreadonly() if self.read_only else view


class Contexts:
    """The primary contexts that have used a mapping. They are kept, and waited for before it goes: a
    framework drops a tensor as soon as its last kernel was launched."""

    def __init__(self) -> None:
        self._held: dict[int, _cuda.Primary] = {}

    def hold(self, device: int) -> _cuda.Primary:
        held = self._held.get(device)
        if held is None:
            made = _cuda.Primary(device)
            held = self._held.setdefault(device, made)
            if held is not made:
                made.release()
        return held

    def hold_current(self) -> None:
        """The current context's device, unless it is a context that only its program knows."""
        device = _cuda.current_device()
        if _cuda.primary_is_active(device):
            self.hold(device)

    def wait(self) -> None:
        for primary in self._held.values():
            with contextlib.suppress(_cuda.CudaError, MemoryError), primary:
                _cuda.synchronize()

    def release(self) -> None:
        while self._held:
            self._held.popitem()[1].release()


def _finalize(owner: Any, function: Any, *arguments: Any) -> Any:
    """Not at exit: what still has the memory then, has it until the process is gone."""
    finalizer = weakref.finalize(owner, function, *arguments)
    finalizer.atexit = False
    return finalizer


def _close(handle: int, contexts: Contexts, name: str) -> None:
    contexts.wait()
    try:
        _native.check(_native.library().gpumem_close(handle), name)
    except OSError as error:
        warnings.warn(f"closing {name}: {error}", ResourceWarning, stacklevel=2)
    contexts.release()


class FileMemory(Memory):
    """A lease and its mappings, which are made when first asked for."""

    def __init__(self, handle: Optional[int], name: str) -> None:
        if not handle:
            raise _native.failure(name)
        self.name = name
        self._handle = handle
        self._contexts = Contexts()
        self._finalizer = _finalize(self, _close, handle, self._contexts, name)
        info = self.info()
        self.size = info.size
        self.kind = info.kind
        self.on_cpu = info.kind != _native.KIND_DEVICE
        self.read_only = bool(info.flags & _native.INFO_READ_ONLY)
        self.private = bool(info.flags & _native.INFO_PRIVATE)
        self.index = None if info.kind == _native.KIND_HOST else info.device
        self.uuid_bytes = bytes(info.uuid)

    @classmethod
    def open(cls, path: Any, flags: int) -> FileMemory:
        name = _native.path_name(path)
        return cls(_native.library().gpumem_open(os.fsencode(name), flags), name)

    @classmethod
    def open_fd(cls, fd: int, name: str) -> FileMemory:
        return cls(_native.library().gpumem_open_fd(fd), name)

    def info(self) -> _native.Info:
        info = _native.Info(bytes=ctypes.sizeof(_native.Info))
        _native.check(_native.library().gpumem_get_info(self._handle, ctypes.byref(info)), self.name)
        return info

    def end_now(self) -> None:
        """For an owner who knows that nothing else refers to this."""
        self._finalizer()

    def extend(self) -> None:
        _native.check(_native.library().gpumem_extend(self._handle), self.name)
        self.size = self.info().size

    def flush(self) -> None:
        _native.check(_native.library().gpumem_flush(self._handle), self.name)

    def _own_device(self) -> int:
        return _cuda.device_of(self.uuid_bytes)

    @contextlib.contextmanager
    def _context(self, device: Optional[int]) -> Iterator[None]:
        """Of this device, or of any when it is None; the current one where it will do, else the
        primary one of the device, or of the file's own."""
        if _cuda.current() is not None and device in (None, _cuda.current_device()):
            self._contexts.hold_current()
            yield
        else:
            with self._contexts.hold(self._own_device() if device is None else device):
                yield

    def _map_device(self) -> int:
        address = ctypes.c_ulonglong()
        _native.check(_native.library().gpumem_map_device(
            self._handle, ctypes.byref(address), None), self.name)
        return address.value

    def device_address(self) -> int:
        if self.on_cpu and _cuda.current() is None:
            raise _cuda.CudaError("this thread has no current CUDA context")
        with self._context(None):
            return self._map_device()

    def host_address(self) -> int:
        address = ctypes.c_void_p()
        _native.check(_native.library().gpumem_map_host(
            self._handle, ctypes.byref(address), None), self.name)
        return address.value or 0

    def dlpack_device(self) -> tuple[int, int]:
        return (CPU, 0) if self.on_cpu else (CUDA, self._own_device())

    def dlpack_address(self) -> int:
        if self.on_cpu:
            return self.host_address()
        with self._context(self._own_device()):
            return self._map_device()

    def copy(self, offset: int, size: int) -> Memory:
        """Where the file is: on its GPU, or in system memory."""
        if self.on_cpu:
            return HostCopy(self, offset, size)
        return DeviceCopy(self, offset, size)


class HostCopy(Memory):
    """System memory, aligned to 64 bytes."""

    ALIGNMENT = 64

    def __init__(self, source: Memory, offset: int, size: int) -> None:
        self.size, self.read_only, self.on_cpu, self.name = size, False, True, f"a copy of {source.name}"
        self._bytes = (ctypes.c_ubyte * (size + self.ALIGNMENT))()
        self._address = -(-ctypes.addressof(self._bytes) // self.ALIGNMENT) * self.ALIGNMENT
        ctypes.memmove(self._address, source.host_address() + offset, size)

    def host_address(self) -> int:
        return self._address

    def device_address(self) -> int:
        raise _cuda.CudaError(f"{self.name} is not memory that a GPU can reach")

    def dlpack_device(self) -> tuple[int, int]:
        return CPU, 0

    def dlpack_address(self) -> int:
        return self._address

    def copy(self, offset: int, size: int) -> Memory:
        return HostCopy(self, offset, size)


def _free(address: int, primary: _cuda.Primary, name: str) -> None:
    try:
        with primary:
            _cuda.synchronize()
            _cuda.free(address)
    except (_cuda.CudaError, MemoryError) as error:
        warnings.warn(f"freeing {name}: {error}", ResourceWarning, stacklevel=2)
    primary.release()


class DeviceCopy(Memory):
    """Memory of the GPU's primary context, as frameworks and the CUDA runtime have it."""

    def __init__(self, source: Memory, offset: int, size: int) -> None:
        self.size, self.read_only, self.on_cpu, self.name = size, False, False, f"a copy of {source.name}"
        self._device = source.dlpack_device()[1]
        primary = _cuda.Primary(self._device)
        try:
            with primary:
                self._address = _cuda.allocate(size)
        except BaseException:
            primary.release()
            raise
        _finalize(self, _free, self._address, primary, self.name)
        with primary:
            _cuda.copy(self._address, source.dlpack_address() + offset, size)

    def device_address(self) -> int:
        return self._address

    def host_address(self) -> int:
        raise ValueError(f"{self.name} is memory of a GPU and has no CPU mapping")

    def dlpack_device(self) -> tuple[int, int]:
        return CUDA, self._device

    def dlpack_address(self) -> int:
        return self._address

    def copy(self, offset: int, size: int) -> Memory:
        return DeviceCopy(self, offset, size)
