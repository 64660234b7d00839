# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Buffers and views, and the interfaces by which other packages take the arrays."""

from __future__ import annotations

import contextlib
import math
import operator
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional, Union

from . import _cuda, _dlpack, _dtypes, _modes, _native
from ._dtypes import Dtype
from ._memory import CPU, ONEAPI, FileMemory, Memory
from ._pieces import Piece

_MAX = 2**63 - 1


def shape_of(shape: Union[int, Iterable[int]]) -> tuple[int, ...]:
    """The shape as a tuple. ValueError: not a shape."""
    try:
        numbers = tuple(map(operator.index, (shape,) if isinstance(shape, int) else shape))
    except TypeError:
        raise ValueError(f"{shape!r} is not a shape: a number or a sequence of numbers") from None
    if any(number < 0 for number in numbers):
        raise ValueError(f"shape {numbers} has a negative length")
    if math.prod(number for number in numbers if number) > _MAX:
        raise ValueError(f"shape {numbers} is too large")
    return numbers


class _Exports:
    """The interfaces that views and buffers share."""

    _dtype: Dtype
    _copied = False

    def _lend(self) -> Memory:
        """The memory, for a consumer that keeps only a reference to this object."""
        raise NotImplementedError

    def _place(self) -> tuple[Memory, int, tuple[int, ...]]:
        """The memory, the offset in it, the shape."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._dtype.size_of(math.prod(self._place()[2])) or 0

    @property
    def read_only(self) -> bool:
        """Whether writing to the memory is forbidden. A private copy is writable."""
        return self._place()[0].read_only

    @property
    def memory(self) -> memoryview:
        """The bytes as the CPU sees them: a one-dimensional memoryview of format "B", read-only if
        the file is. The memoryview keeps the memory alive.

        In host/ these are the bytes of the file itself. The memory of a GPU is mapped through its BAR: stores run at
        10 GB/s and need Buffer.flush() afterwards, loads are slow (0.1 GB/s). OSError (ENOTSUP): no way to
        the BAR works on this machine."""
        memory, offset, _ = self._place()
        return memory.bytes(offset, self.nbytes)

    def _typed(self, flags: int) -> memoryview:
        memory, offset, shape = self._place()
        if not memory.on_cpu:
            raise BufferError(f"{memory.name} is memory of a GPU: use .memory to map it for the CPU")
        if not self._dtype.format:
            raise BufferError(f"the buffer protocol has no {self._dtype.name}: use .memory for the bytes")
        view = memory.bytes(offset, self.nbytes)
        if shape == (view.nbytes,) and self._dtype.format == "B" or not view.nbytes:
            return view
        return view.cast(self._dtype.format, shape)  # type: ignore[call-overload]

    def __buffer__(self, flags: int) -> memoryview:
        """For memoryview(x), from Python 3.12 on; memory of the CPU only."""
        return self._typed(flags)

    def _array_interface(self, address: int) -> dict[str, Any]:
        return {
            "shape": self._place()[2],
            "typestr": self._dtype.typestr,
            "data": (address, self.read_only),
            "strides": None,
            "version": 3,
        }

    def _need_typestr(self) -> None:
        if not self._dtype.typestr:
            raise AttributeError(f"array interfaces have no {self._dtype.name}: use from_dlpack")

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """For numpy.asarray(x), without a copy: memory of the CPU only."""
        memory, offset, _ = self._place()
        self._need_typestr()
        if not memory.on_cpu:
            raise AttributeError(f"{memory.name} is memory of a GPU")
        address = self._lend().host_address() + offset if self.nbytes else 0
        return self._array_interface(address)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Only called by numpy without an array interface: TypeError, where numpy would make an array of one object."""
        memory = self._place()[0]
        if not memory.on_cpu:
            raise TypeError(f"{memory.name} is memory of a GPU: use torch.from_dlpack, cupy.asarray, "
                            "or .memory for the CPU")
        raise TypeError(f"numpy has no {self._dtype.name}: use torch.from_dlpack, or view the bytes as an integer type "
                        "of the same size")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3: the address on the GPU of the calling thread's current CUDA context.

        Without a current context, the address is for the primary context of the file's GPU, which the CUDA
        runtime and every framework use, and which is created if necessary. With torch for ROCm the address of a file
        of backend=vulkan is HIP's. A file in host/ has this
        interface only in threads with a current context; bfloat16 and FP8 types do not have the interface.

        "stream" is None: no work is pending for which a consumer would have to wait."""
        memory, offset, _ = self._place()
        self._need_typestr()
        if memory.imported and memory.dlpack_device()[0] == ONEAPI:
            raise AttributeError(f"{memory.name} is memory of Level Zero: use from_dlpack")
        address = 0
        if self.nbytes:
            try:
                address = self._lend().device_address() + offset
            except (_cuda.CudaError, OSError) as error:
                if memory.on_cpu:
                    raise AttributeError(f"no device address: {error}") from error
                raise
        return {**self._array_interface(address), "stream": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        """(2, N) for memory of a GPU, where N is CUDA's number of the GPU in this process; (1, 0) for memory
        of the CPU, host/ included. For a file of backend=vulkan in a program with torch for ROCm (10, N) by HIP, with torch
        for Intel's GPUs (14, N) by Level Zero, otherwise (1, 0)."""
        return self._place()[0].dlpack_device()

    def __dlpack__(self, stream: Optional[int] = None, max_version: Optional[tuple[int, int]] = None,
                   dl_device: Optional[tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A DLPack capsule: versioned (1.1) if max_version is at least (1, 0), otherwise legacy. The capsule keeps
        the memory alive, even without this object, until the consumer drops the tensor.

        stream: ignored, because no work is pending. dl_device: __dlpack_device__() or None. copy: True
        makes a copy on the same device.

        A legacy capsule cannot say that memory is read-only. Read-only memory of a GPU is exported all the same, and
        the consumer must not write. For read-only memory of the CPU a legacy capsule is a BufferError, because a
        write would end the process. Another device is a BufferError too."""
        if copy:
            return self._copy()._capsule(max_version, dl_device, _dlpack.IS_COPIED)
        return self._capsule(max_version, dl_device, _dlpack.IS_COPIED if self._copied else 0)

    def _capsule(self, max_version: Optional[tuple[int, int]], dl_device: Optional[tuple[int, int]],
                 flags: int) -> Any:
        memory, offset, shape = self._place()
        device = memory.dlpack_device()
        versioned = max_version is not None and max_version[0] >= 1
        if dl_device is not None and tuple(map(int, dl_device)) != device:
            raise BufferError(f"{memory.name} is on DLPack device {device}, not on {dl_device}")
        if memory.read_only and not versioned and device[0] == CPU:
            raise BufferError(f"{memory.name} is read-only, which a legacy DLPack capsule cannot say: use "
                              "numpy.asarray, or a consumer of DLPack 1.0")
        address = memory.dlpack_address() + offset if self.nbytes else 0
        flags |= _dlpack.READ_ONLY if memory.read_only else 0
        return _dlpack.capsule(memory, address, device, self._dtype, shape, flags if versioned else None)

    def _copy(self) -> View:
        memory, offset, shape = self._place()
        source: Any = memory
        if not self.nbytes:
            return View(memory, self._dtype, shape, offset)
        view = View(source.copy(offset, self.nbytes), self._dtype, shape, 0)
        view._copied = True
        return view


class View(_Exports):
    """An array in the memory of a file: contiguous, in C order. A view copies nothing and keeps the memory
    alive. torch.from_dlpack, jax.dlpack.from_dlpack, cupy.from_dlpack, cupy.asarray and
    torch.as_tensor accept views; numpy.asarray and numpy.from_dlpack accept views of host/.

    dtype: the name of the element type, such as "bfloat16"."""

    def __init__(self, memory: Memory, dtype: Dtype, shape: tuple[int, ...], offset: int) -> None:
        self._memory, self._dtype, self._shape, self._offset = memory, dtype, shape, offset

    def _place(self) -> tuple[Memory, int, tuple[int, ...]]:
        return self._memory, self._offset, self._shape

    def _lend(self) -> Memory:
        return self._memory

    def __setstate__(self, state: dict[str, Any]) -> None:
        """For pickle and copy, which open the memory first: the file may have become shorter meanwhile."""
        vars(self).update(state)
        if self._offset + self.nbytes > self._memory.size:
            raise ValueError(f"{self._memory.name} has become too short for the view: {self._memory.size} bytes")

    @property
    def dtype(self) -> str:
        return self._dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def offset(self) -> int:
        """Of the first element in the file, in bytes; 0 for a copy."""
        return self._offset

    def view(self, dtype: Any, shape: Union[int, Iterable[int], None] = None, offset: int = 0) -> View:
        """The same bytes as another type, or a part of the bytes: Buffer.view() with offset counted from the start of
        this view. Helps with frameworks that lack a type: weights["w"].view("uint8")."""
        view = _view(self._memory, self._offset, self.nbytes, dtype, shape, offset)
        view._copied = self._copied
        return view

    def copy(self) -> View:
        """A copy of the array: on the same GPU, aligned to 256 bytes, or in system memory, aligned to 64. The copy
        is freed with the last tensor that uses the copy. MemoryError: no room."""
        return self._copy()

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a view without dimensions")
        return self._shape[0]

    def __repr__(self) -> str:
        return f"<gpumem.View {self.dtype} {self._shape} at byte {self._offset} of {self._memory.name}>"


def _view(memory: Memory, begin: int, room: int, dtype: Any, shape: Union[int, Iterable[int], None],
          offset: int) -> View:
    """A view of the room bytes of the memory from begin on. The start of a memory is aligned for every type."""
    found, offset = _dtypes.find(dtype), operator.index(offset)
    if not 0 <= offset <= room:
        raise ValueError(f"offset {offset} is not in the {room} bytes of {memory.name}")
    if (begin + offset) % found.alignment:
        raise ValueError(f"byte {begin + offset} of {memory.name} is not at a multiple of {found.alignment}, "
                         f"the size of a {found.name}")
    numbers = ((room - offset) * 8 // found.bits,) if shape is None else shape_of(shape)
    size = found.size_of(math.prod(numbers))
    if size is None:
        raise ValueError(f"{math.prod(numbers)} elements of {found.name} do not end at a byte")
    if size > room - offset:
        raise ValueError(f"{found.name} {numbers} at offset {offset} needs {size} bytes; there are "
                         f"{room - offset} from there")
    return View(memory, found, numbers, offset + begin)


class Buffer(_Exports):
    """The bytes of an open file: a lease on its memory, and an array of uint8 of shape (size,).

    The memory is mapped on first use, and released when the buffer and all views, tensors and memoryviews made from
    the buffer are gone. close(), or the end of a `with` block, releases only the buffer's own reference: views and
    tensors stay valid."""

    _dtype = _dtypes.UINT8

    def __init__(self, memory: FileMemory) -> None:
        self._memory: Optional[FileMemory] = memory
        self._lent: Optional[FileMemory] = None

    def _file(self) -> FileMemory:
        if self._memory is None:
            raise ValueError("the buffer is closed")
        return self._memory

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: the file, which is opened again."""
        if self._memory is None:
            raise TypeError("the buffer is closed, and cannot be pickled or copied")
        return {"_memory": self._memory, "_lent": None}

    def _place(self) -> tuple[Memory, int, tuple[int, ...]]:
        memory = self._file()
        return memory, 0, (memory.size,)

    def _lend(self) -> Memory:
        """A consumer of an array interface has a reference to this object alone, so a closed buffer still keeps the
        memory."""
        self._lent = self._file()
        return self._lent

    @property
    def path(self) -> str:
        """The path given to open()."""
        return self._file().name

    @property
    def size(self) -> int:
        """The size of the file in bytes at the open or the last extend()."""
        return self._file().size

    @property
    def device(self) -> Optional[int]:
        """The N of gpuN, as nvidia-smi numbers GPUs; None in host/."""
        return self._file().index

    @property
    def uuid(self) -> Optional[str]:
        """The UUID of the GPU as nvidia-smi -L prints it: "GPU-..."; None in host/. For a MIG instance nvidia-smi
        prints MIG in the place of GPU."""
        memory = self._file()
        return None if memory.index is None else f"GPU-{uuid.UUID(bytes=memory.uuid_bytes)}"

    @property
    def private(self) -> bool:
        """Whether this is a copy of the file made at the open: no other process sees changes."""
        return self._file().private

    @property
    def provider(self) -> str:
        """The kind of the CPU's mapping: "mmap", "dmabuf", "gdrcopy", "vulkan"; "" before the memory is mapped."""
        return self._file().info().provider.decode()

    def view(self, dtype: Any, shape: Union[int, Iterable[int], None] = None, offset: int = 0) -> View:
        """An array in the file.

        dtype: "float32", "bfloat16", "float8_e4m3fn" and so on, safetensors' names ("BF16"), or a dtype
        of numpy, torch or jax. shape: in elements; None: one-dimensional, to the end of the file.
        offset: of the first element, in bytes, a multiple of the element's size.

        ValueError: the array is not inside the file or not aligned, or the arguments are wrong."""
        memory = self._file()
        return _view(memory, 0, memory.size, dtype, shape, offset)

    def copy(self) -> View:
        """A copy of the bytes; see View.copy()."""
        return self._copy()

    def extend(self) -> int:
        """After the file grew: makes the buffer cover the new size, and returns the size. Existing views stay valid.
        OSError with ENOSPC: the room behind the mapping is used up: open the file again."""
        self._file().extend()
        return self.size

    def flush(self) -> None:
        """Makes the stores of this process through .memory visible to every GPU and process."""
        self._file().flush()

    def export(self, for_reading: bool = False) -> list[Piece]:
        """Descriptors of the memory of a GPU's file, for imports by Vulkan, HIP, Level Zero, OpenCL or CUDA: the pieces of the
        file, in order. A descriptor gives full access to the memory. Keep the buffer until imports and descriptors are
        freed; the file cannot be parked any more.

        for_reading: a promise not to write, without which a read-only file is a PermissionError. OSError with ENOTSUP:
        memory of the system."""
        return self._file().export(for_reading)

    def on_end(self, function: Optional[Callable[[], Any]]) -> None:
        """Has function() called once, by another thread, when the process that shared the file's memory (gpumem.share)
        has ended or has released it; by this call if that was before. The memory stays, and reads of the file fail
        with EIO. None: no function. A child of fork has none."""
        self._file().on_end(function)

    def end_fd(self) -> int:
        """A descriptor that is readable from then on, for select and event loops. It is the buffer's."""
        return self._file().end_fd()

    def park(self) -> None:
        """Gives the memory back for a while: ends the lease and unmaps the file, and keeps its addresses. Meanwhile the
        memory may leave the GPU, and no kernel and no view may use it. OSError with ENOTSUP: a private copy, or a file of
        host/."""
        self._file().park()

    def unpark(self) -> bool:
        """Maps the file again at the same addresses, so that its views are valid as before. Whether a write changed the
        file meanwhile, as far as the daemon knows. After an error the buffer is still parked; OSError with ESTALE: the
        file was emptied or removed, with ENOSPC: the GPU has no room."""
        return self._file().unpark()

    def parked(self) -> contextlib.AbstractContextManager[Buffer]:
        """park() for a while: `with buffer.parked(): ...`."""
        return parked(self)

    def close(self) -> None:
        """Releases the buffer's reference to the memory. Closing twice is fine."""
        self._memory = None

    @property
    def closed(self) -> bool:
        return self._memory is None

    def __len__(self) -> int:
        return self.size

    def __enter__(self) -> Buffer:
        self._file()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._memory is None:
            return "<gpumem.Buffer, closed>"
        where = "host" if self.device is None else f"gpu{self.device}"
        return f"<gpumem.Buffer of {self.size} bytes of {self.path} on {where}>"


@contextlib.contextmanager
def parked(parks: Any) -> Iterator[Any]:
    """Parks a buffer or a pool until the end of a `with` block."""
    parks.park()
    try:
        yield parks
    finally:
        parks.unpark()


def _size_check(size: Any) -> int:
    number = operator.index(size)
    if not 0 <= number <= _MAX:
        raise ValueError(f"a file cannot have {number} bytes")
    return number


def create(path: Union[str, bytes, os.PathLike[Any]], shape: Union[int, Iterable[int]], dtype: Any = "uint8",
           exclusive: bool = False) -> View:
    """Creates a file on gpumemfs that contains one array of zeros, and returns the array.

    All memory is allocated at once; after a failure nothing has changed. shape, dtype: as for Buffer.view().
    exclusive: True: an existing file is a FileExistsError; False: the new file replaces the existing file.

    OSError with errno ENOTSUP: not on gpumemfs; ENOSPC, EDQUOT: no room; and the errors of open(). ValueError:
    wrong arguments."""
    found, numbers = _dtypes.find(dtype), shape_of(shape)
    size = found.size_of(math.prod(numbers))
    if size is None:
        raise ValueError(f"{math.prod(numbers)} elements of {found.name} do not end at a byte")
    memory = FileMemory.create(path, _size_check(size), _native.CREATE_EXCL if exclusive else 0)
    return View(memory, found, numbers, 0)


def open(path: Union[str, bytes, os.PathLike[Any]], mode: str = "r", size: Optional[int] = None) -> Buffer:
    """Opens a file on gpumemfs and holds its memory.

    mode: "w+" creates a file of size bytes of zeros, which replaces an existing file; "x+" creates a file that must
    not exist. Both allocate all memory at once, and change nothing after a failure. "r+" is the file itself, to read and write. "r" is the file itself, marked read-only, if the file's
    attribute user.gpumem.share is "trusted", and in host/; for any other file "r" makes a private copy
    on the GPU, which takes as much of the GPU's memory as the file, with a CopyWarning once in a process if the copy
    has more than 64 MiB. "copy" makes the private copy without a warning.

    OSError with errno ENOTSUP: not on gpumemfs; EISDIR: a directory; ENOTCONN: the daemon cannot be
    reached; ENOSPC: no room for the copy; and the errors of open(2). ValueError: a wrong mode, or "copy" of a
    file whose readers get the memory of the file itself."""
    if mode in ("w+", "x+"):
        if size is None:
            raise ValueError(f"mode {mode!r} needs the size of the file")
        return Buffer(FileMemory.create(path, _size_check(size), _native.CREATE_EXCL if mode == "x+" else 0))
    if size is not None:
        raise ValueError("only the modes 'w+' and 'x+' have a size")
    return Buffer(_modes.memory_check(FileMemory.open(path, _modes.flags_of(mode, "'r', 'r+', 'w+', 'x+' or 'copy'")), mode))
