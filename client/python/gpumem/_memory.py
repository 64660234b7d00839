# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The memory that views refer to: the memory of a file, or a copy. Freed with the last reference."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Optional

from . import _cuda, _native, _pieces
from ._identity import Identity, machine

CPU, CUDA, ROCM, ONEAPI = 1, 2, 10, 14  # DLDeviceType
_IMPORTERS = {b"hip": ROCM, b"levelzero": ONEAPI}


def _torch_imports() -> bool:
    """Whether the program's torch is for GPUs of AMD or Intel, whose drivers import Vulkan's memory."""
    version = getattr(sys.modules.get("torch"), "version", None)
    return bool(getattr(version, "hip", None) or getattr(version, "xpu", None))


class Memory:
    """size: in bytes. on_cpu: system memory, addressed by host_address(); otherwise memory of a GPU. Both addresses
    are valid as long as the object lives."""

    size: int
    read_only: bool
    on_cpu: bool
    imported = False  # memory of a GPU that HIP or Level Zero maps
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
        """The bytes of the CPU's mapping; the memoryview keeps this object alive."""
        if not size:
            return memoryview(b"" if self.read_only else bytearray())
        array: Any = (ctypes.c_ubyte * size).from_address(self.host_address() + offset)
        array.memory = self
        view = memoryview(array).cast("B")
        return view.toreadonly() if self.read_only else view

    def __reduce__(self) -> Any:
        """For pickle and copy: an address means nothing in another process, and two objects must not free one memory."""
        raise TypeError(f"{self.name} is memory of this process alone, and cannot be pickled or copied by copy: use its "
                        "copy(), or pickle a view of a file")


class Contexts:
    """The primary contexts that have used a mapping. Each context is retained, and its work is waited for before the
    mapping is removed, because a framework drops a tensor as soon as the tensor's last kernel was launched."""

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
        """Retains the primary context of the current device, unless the program uses a context of its own."""
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
    """A finalizer that does not run at exit: objects that still use the memory then may use it until the process ends."""
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
    """A lease and its mappings, each made on first use."""

    shared: Any = None  # the array of another allocator whose memory this is
    _ended: Optional[Callable[[], Any]] = None
    _watched: weakref.WeakValueDictionary[int, FileMemory] = weakref.WeakValueDictionary()  # by handle
    _alive: weakref.WeakSet[FileMemory] = weakref.WeakSet()
    _adding = threading.Lock()

    def __init__(self, handle: Optional[int], name: str, flags: int) -> None:
        if not handle:
            raise _native.failure(name)
        self.name = name
        self._handle, self._flags = handle, flags
        self._contexts = Contexts()
        self._finalizer = _finalize(self, _close, handle, self._contexts, name)
        info = self.info()
        self.size = info.size
        self.kind = info.kind
        # A file of backend=vulkan is on its GPU for torch's versions for AMD and Intel.
        self.imported = info.kind == _native.KIND_VULKAN and _torch_imports()
        self.read_only = bool(info.flags & _native.INFO_READ_ONLY)
        self.private = bool(info.flags & _native.INFO_PRIVATE)
        self.index = None if info.kind == _native.KIND_HOST else info.device
        self.uuid_bytes = bytes(info.uuid)
        self.identity = Identity(machine(), info.filesystem, info.inode)
        with self._adding:
            self._alive.add(self)

    @functools.cached_property
    def on_cpu(self) -> bool:  # type: ignore[override]
        """CUDA reaches memory of backend=vulkan on NVIDIA's GPUs alone, and is not initialised before it is needed."""
        if self.kind != _native.KIND_VULKAN:
            return self.kind != _native.KIND_DEVICE
        if self.imported:
            return False
        try:
            _cuda.device_of(self.uuid_bytes)
        except _cuda.CudaError:
            return True
        return False

    @classmethod
    def all(cls) -> list[FileMemory]:
        """Every open file of this process, by its name."""
        with cls._adding:
            return sorted(cls._alive, key=lambda memory: memory.name)

    @classmethod
    def open(cls, path: Any, flags: int) -> FileMemory:
        name = _native.path_name(path)
        return cls(_native.library().gpumem_open(os.fsencode(name), flags), name, flags)

    @classmethod
    def create(cls, path: Any, size: int, flags: int) -> FileMemory:
        """A new file of size bytes, all of them allocated. flags: _native.CREATE_EXCL and CREATE_PENDING."""
        name = _native.path_name(path)
        return cls(_native.library().gpumem_create(os.fsencode(name), size, 0, 0o666, flags), name, os.O_RDWR)

    def publish(self) -> None:
        """Gives a pending file its name."""
        _native.check(_native.library().gpumem_publish(self._handle), self.name)

    @classmethod
    def open_fd(cls, fd: int, name: str) -> FileMemory:
        return cls(_native.library().gpumem_open_fd(fd), name, fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE)

    @classmethod
    def open_fd_timed(cls, fd: int, name: str) -> FileMemory:
        """The memory of an open file. The lease leaves the file's times alone: the caller sets them, or only loads."""
        flags = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        if flags != os.O_RDWR:
            return cls.open_fd(fd, name)
        return cls(_native.library().gpumem_open(b"/proc/self/fd/%d" % fd, flags | _native.OPEN_TIMED), name, flags)

    @classmethod
    def open_again(cls, name: str, flags: int, identity: Identity, private: bool) -> FileMemory:
        """For pickle: the file with the rights that the pickled object had. The file is compared before its memory is
        taken."""
        fd = os.open(name, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if Identity.of(os.fstat(fd)) != identity:
                raise OSError(errno.ESTALE, "another file has this path now than when the object was pickled", name)
            memory = cls.open_fd(fd, name)
        finally:
            os.close(fd)
        if memory.private != private:
            raise ValueError(f"{name} is {'a private copy' if memory.private else 'the memory of the file itself'} now, "
                             "and was not when the object was pickled: user.gpumem.share has changed")
        return memory

    def __reduce__(self) -> Any:
        name = os.path.abspath(self.name)
        try:
            found = Identity.of(os.stat(name))
        except OSError as error:
            raise TypeError(f"{name} cannot be pickled: it could not be opened again: {error.strerror}") from error
        if found != self.identity:
            raise TypeError(f"{name} cannot be pickled: the path leads to another file than the one that is open")
        return FileMemory.open_again, (name, self._flags, self.identity, self.private)

    def info(self) -> _native.Info:
        info = _native.Info(bytes=ctypes.sizeof(_native.Info))
        _native.check(_native.library().gpumem_get_info(self._handle, ctypes.byref(info)), self.name)
        return info

    def end_now(self) -> None:
        """Ends the lease. The caller must have the only reference."""
        self._finalizer()

    def extend(self) -> None:
        _native.check(_native.library().gpumem_extend(self._handle), self.name)
        self.size = self.info().size

    def export(self, for_reading: bool) -> list[_pieces.Piece]:
        return _pieces.pieces(self._handle, for_reading, self.name)

    def on_end(self, function: Optional[Callable[[], Any]]) -> None:
        # First, so that a call for the earlier function, which may be under way, does not find this one.
        _native.check(_native.library().gpumem_on_end(self._handle, _native.EndFunction(), None), self.name)
        self._ended = function
        self._watched[self._handle] = self
        if function is not None:
            _native.check(_native.library().gpumem_on_end(self._handle, _on_end, None), self.name)

    @classmethod
    def call_ended(cls, handle: int) -> None:
        memory = cls._watched.get(handle)
        function = memory._ended if memory is not None else None
        if function is not None:
            function()

    def end_fd(self) -> int:
        fd: int = _native.library().gpumem_end_fd(self._handle)
        if fd < 0:
            raise _native.failure(self.name)
        return fd

    def flush(self) -> None:
        _native.check(_native.library().gpumem_flush(self._handle), self.name)

    def wait(self) -> None:
        """Waits for the work of all contexts that have used the memory."""
        self._contexts.wait()

    def park(self) -> None:
        _native.check(_native.library().gpumem_park(self._handle), self.name)

    def unpark(self) -> bool:
        """Whether the file was changed meanwhile."""
        changed = _native.library().gpumem_unpark(self._handle)
        _native.check(min(changed, 0), self.name)
        self.size = self.info().size
        return bool(changed)

    def switch(self, path: str, name: str) -> None:
        """Puts the memory of the file at the path behind the addresses, and waits before for all work on them. name: of the
        file from then on."""
        handles, paths = (ctypes.c_void_p * 1)(self._handle), (ctypes.c_char_p * 1)(os.fsencode(path))
        self.wait()
        _native.check(_native.library().gpumem_switch(handles, paths, 1), name)
        info = self.info()
        self.name, self.size, self.identity = name, info.size, Identity(machine(), info.filesystem, info.inode)

    def _own_device(self) -> int:
        return _cuda.device_of(self.uuid_bytes)

    @contextlib.contextmanager
    def _context(self, device: Optional[int]) -> Iterator[None]:
        """Makes a context of the device current, or of any device if None: the current context if it fits, otherwise the
        primary context of the device, or of the file's GPU."""
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
        if self.imported:
            return self._map_device()
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
        if self.on_cpu or (self.imported and not self.size):
            return CPU, 0
        if self.imported:
            self._map_device()
            info = self.info()
            if info.driver in _IMPORTERS:
                return _IMPORTERS[info.driver], info.number
        return CUDA, self._own_device()

    def dlpack_address(self) -> int:
        if self.on_cpu:
            return self.host_address()
        if self.imported:
            return self._map_device()
        with self._context(self._own_device()):
            return self._map_device()

    def copy(self, offset: int, size: int) -> Memory:
        """A copy on the same GPU, or in system memory, as the file."""
        if self.on_cpu:
            return HostCopy(self, offset, size)
        if self.imported:
            raise BufferError(f"{self.name} is memory of a GPU that only its framework copies: import the view, and copy "
                              "the tensor")
        return DeviceCopy(self, offset, size)


# Never freed: a thread of the library may be about to call the function while another sets the next.
_on_end = _native.EndFunction(lambda handle, _context: FileMemory.call_ended(handle))


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
    """Memory of the GPU's primary context, which frameworks and the CUDA runtime use."""

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
