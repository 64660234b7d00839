# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Sets of tensors that processes share: a file for each segment of torch's allocator, and an index. The format of the
index is in docs/sharing.md."""

from __future__ import annotations

import bisect
import contextlib
import errno
import gc
import itertools
import json
import math
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Optional, Union

import torch

from .. import _dlpack, _modes
from .._dtypes import SAFETENSORS
from .._memory import FileMemory
from .._share import share_range
from .._views import Buffer
from . import _dtypes, _tensors

INDEX = "tensors.json"
_VERSION = 1
_INDEX_MAX = 100_000_000  # as of the header of a safetensors file
_NUMBER_MAX = 2**63 - 1
_CAREFULLY = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_RANK_MAX = 64  # of torch
_ALIGNMENT = 16  # of files; no element is larger, and no allocation begins elsewhere
_TRIES = 8  # an index may be replaced while its files are opened
Path = Union[str, bytes, os.PathLike[Any]]


class _Range(NamedTuple):
    """The bytes of a tensor. size: from the first element to the end of the last element."""

    name: str
    tensor: torch.Tensor
    code: str
    begin: int
    size: int


def _range_of(name: str, tensor: torch.Tensor) -> _Range:
    dtype = _dtypes.from_torch(tensor.dtype) if tensor.layout == torch.strided else None
    if dtype is None or dtype.bits % 8:
        raise ValueError(f"tensor {name!r} cannot be in an index: it is {tensor.dtype}, {tensor.layout}")
    if not tensor.is_cuda:
        raise ValueError(f"tensor {name!r} is on {tensor.device}, not on a GPU of CUDA")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(f"tensor {name!r} is a view whose bytes are not its values: share its resolve_conj().resolve_neg()")
    elements = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    size = elements * tensor.element_size() if tensor.numel() else 0
    return _Range(name, tensor, _dtypes.CODES[dtype.name], tensor.data_ptr(), size)


def _segments() -> list[tuple[int, int]]:
    """The ranges of addresses in which torch's allocator has memory, ascending."""
    return sorted((segment["address"], segment["address"] + segment["total_size"])
                  for segment in torch.cuda.memory_snapshot())


def _segment_of(found: _Range, segments: list[tuple[int, int]]) -> tuple[int, int]:
    """The range itself for memory of another allocator."""
    at = bisect.bisect_right(segments, (found.begin, math.inf)) - 1
    if at >= 0 and found.begin + found.size <= segments[at][1]:
        return segments[at]
    return found.begin, found.begin + found.size


def _files(ranges: list[_Range]) -> list[tuple[int, int]]:
    """Of each segment the addresses from its first shared byte to its last, ascending."""
    segments = _segments()
    shared: dict[tuple[int, int], tuple[int, int]] = {}
    for found in ranges:
        if found.size:
            segment, end = _segment_of(found, segments), found.begin + found.size
            first = found.begin - found.begin % _ALIGNMENT
            begin, last = shared.get(segment, (first, end))
            shared[segment] = min(begin, first), max(last, end)
    files: list[tuple[int, int]] = []
    for begin, end in sorted(shared.values()):
        # Memory of other allocators may have views that overlap.
        if files and begin < files[-1][1]:
            files[-1] = files[-1][0], max(end, files[-1][1])
        else:
            files.append((begin, end))
    return files


def _entry(found: _Range) -> dict[str, Any]:
    entry: dict[str, Any] = {"dtype": found.code, "shape": list(found.tensor.shape)}
    if not found.tensor.is_contiguous():
        entry["strides"] = list(found.tensor.stride())
    return entry


def _index(ranges: list[_Range], files: list[tuple[int, int]], buffers: list[Buffer]) -> dict[str, Any]:
    tensors = {}
    for found in ranges:
        tensors[found.name] = entry = _entry(found)
        if found.size:
            entry["file"] = bisect.bisect_right(files, (found.begin, math.inf)) - 1
            entry["offset"] = found.begin - files[entry["file"]][0]
    names = [{"name": os.path.basename(buffer.path), "inode": _inode(buffer)} for buffer in buffers]
    return {"gpumem_tensors": _VERSION, "files": names, "tensors": tensors}


def _inode(buffer: Buffer) -> int:
    return buffer._file().identity.inode


def _index_write(folder: str, index: dict[str, Any], name: str) -> int:
    """In one step. Returns the inode."""
    temporary = os.path.join(folder, name)
    with open(temporary, "x", encoding="utf-8") as file:
        try:
            json.dump(index, file, separators=(",", ":"))
            file.flush()
            inode = os.fstat(file.fileno()).st_ino
            os.replace(temporary, os.path.join(folder, INDEX))
        except BaseException:
            os.unlink(temporary)
            raise
    return inode


class Shared:
    """A set of tensors that share() has shared: keeps them, until close(), the end of a `with` block, or the end of the
    process."""

    def __init__(self, folder: str, buffers: list[Buffer], inode: int, stays: bool) -> None:
        self.directory, self._buffers, self._inode, self._stays = folder, buffers, inode, stays

    @property
    def files(self) -> list[str]:
        """The paths of the files, one for each segment."""
        return [buffer.path for buffer in self._buffers]

    def close(self) -> None:
        """Ends the files, and removes the index if it is still this set's. Sets that stay remain as they are."""
        if self._buffers and not self._stays:
            path = os.path.join(self.directory, INDEX)
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_ino == self._inode:
                    os.unlink(path)
        self._buffers = []

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def share(directory: Path, tensors: Union[torch.nn.Module, Mapping[str, torch.Tensor]], stays: bool = False) -> Shared:
    """Makes a set of tensors of a module (its state_dict()), or of a dict, attachable by other processes, without a copy:
    a file in the directory for each segment of torch's allocator, from its first tensor to its last, and an index, which
    replaces an earlier index in one step. After a failure the directory is as before.

    directory: in the directory of the tensors' GPU. Tensors need not be contiguous. A file shows what else the process
    has between its tensors, and whoever maps the file the whole segment's allocations: see gpumem.share().
    stays: True: the files outlive the object and the process.

    ValueError: a tensor is not on a GPU, is sparse, or is of a type that safetensors files lack. OSError: as
    gpumem.share(), and of writing the index."""
    if isinstance(tensors, torch.nn.Module):
        tensors = tensors.state_dict()
    ranges = [_range_of(name, tensor) for name, tensor in tensors.items()]
    for device in {found.tensor.device for found in ranges}:
        torch.cuda.synchronize(device)
    folder, prefix, kept = os.path.abspath(os.fsdecode(directory)), secrets.token_hex(8), [found.tensor for found in ranges]
    files, buffers = _files(ranges), list[Buffer]()
    try:
        for number, (begin, end) in enumerate(files):
            path = os.path.join(folder, f"{prefix}-{number}")
            buffers.append(Buffer(share_range(path, begin, end - begin, kept, exclusive=True, stays=stays)))
        inode = _index_write(folder, _index(ranges, files, buffers), f"{prefix}.json")
    except BaseException:
        for buffer in buffers:
            os.unlink(buffer.path)
        raise
    return Shared(folder, buffers, inode, stays)


class Tensors(dict[str, torch.Tensor]):
    """Tensors by their names. buffers: the files in whose memory the tensors lie."""

    buffers: list[Buffer]

    def on_end(self, function: Optional[Callable[[], Any]]) -> None:
        """Buffer.on_end() of all files, with a single call of function()."""
        calls = itertools.count()
        for buffer in self.buffers:
            buffer.on_end(None if function is None else lambda: next(calls) or function())


def _wrong(path: str, what: str) -> ValueError:
    return ValueError(f"{path} is not an index of tensors: {what}")


def _index_read(folder: str) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    path = os.path.join(folder, INDEX)
    with open(os.open(path, os.O_RDONLY | _CAREFULLY), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _wrong(path, "no regular file")
        text = file.read(_INDEX_MAX + 1)
    if len(text) > _INDEX_MAX:
        raise _wrong(path, f"more than {_INDEX_MAX} bytes")
    try:
        index = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, str(error)) from None
    if not isinstance(index, dict) or index.get("gpumem_tensors") != _VERSION:
        raise _wrong(path, f"no version {_VERSION}")
    files, tensors = index.get("files"), index.get("tensors")
    if not isinstance(files, list) or not isinstance(tensors, dict):
        raise _wrong(path, "no files, or no tensors")
    for file in files:
        if not isinstance(file, dict) or type(file.get("inode")) is not int or not _is_name(file.get("name")):
            raise _wrong(path, f"{file!r} is no file of the directory")
    return files, tensors


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name


def buffer_open(folder: str, file: dict[str, Any], mode: str) -> Buffer:
    """OSError with ESTALE: the file has ended, and perhaps another one has the name."""
    path = os.path.join(folder, file["name"])
    try:
        # Not by a link: a user who may write the directory could name a file elsewhere.
        fd = os.open(path, _modes.flags_of(mode) | os.O_NOFOLLOW | _CAREFULLY)
        try:
            buffer = Buffer(_modes.memory_check(FileMemory.open_fd(fd, path), mode))
        finally:
            os.close(fd)
    except OSError as error:
        # Between the end of the process and that of the name the file has no memory: EIO.
        if error.errno not in (errno.ENOENT, errno.EIO):
            raise
        raise OSError(errno.ESTALE, "the process that shared the tensors has ended", path) from None
    if _inode(buffer) != file["inode"]:
        raise OSError(errno.ESTALE, "another file has this name", path)
    return buffer


def _numbers(numbers: Any) -> bool:
    if type(numbers) is not list:
        return False
    for number in numbers:  # for an index of 18,000 tensors all() takes twice as long
        if type(number) is not int or not 0 <= number <= _NUMBER_MAX:
            return False
    return True


_TYPES = {code: (dtype.bits // 8, _dtypes.to_torch(dtype)) for code, dtype in SAFETENSORS.items() if not dtype.bits % 8}


def _tensor(entry: Any, storages: list[Any], device: Any) -> torch.Tensor:
    """ValueError, KeyError, TypeError: the entry is wrong."""
    unit, dtype = _TYPES[entry["dtype"]]
    shape, strides = entry["shape"], entry.get("strides")
    if dtype is None:
        raise ValueError(f"this torch has no {entry['dtype']}")
    if not _numbers(shape) or len(shape) > _RANK_MAX:
        raise ValueError("its shape is wrong")
    if strides is not None and (not _numbers(strides) or len(strides) != len(shape)):
        raise ValueError("its strides are wrong")
    elements = math.prod(shape)
    tensor = torch.empty(0 if elements else tuple(shape), dtype=dtype, device=device)
    if not elements:
        return tensor
    if strides is None:
        strides = _dlpack.strides_of(shape)
    else:
        elements = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides))
    number, offset = entry["file"], entry["offset"]
    if not _numbers([number, offset]) or offset % unit or offset + elements * unit > storages[number].nbytes():
        raise ValueError("its bytes are not in the file")
    return tensor.set_(storages[number][offset:offset + elements * unit], 0, tuple(shape), tuple(strides))


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Many new objects make Python look for garbage in all objects, which takes 100 ms for 18,000 tensors."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _attach(folder: str, mode: str) -> Tensors:
    files, entries = _index_read(folder)
    found = Tensors()
    found.buffers = [buffer_open(folder, file, mode) for file in files]
    storages = [_tensors.storage_over(buffer._file()) for buffer in found.buffers]
    device = storages[0].device if storages else "cpu"
    with _without_collections():
        for name, entry in entries.items():
            try:
                found[name] = _tensor(entry, storages, device)
            except (ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
                raise _wrong(os.path.join(folder, INDEX), f"tensor {name!r}: {error}") from None
    return found


def attach(directory: Path, mode: str = "r+") -> Tensors:
    """The tensors of a set that another process has shared in a directory, in the memory of that process: each file is
    mapped once. Writing to a tensor changes it for all.

    mode: as for gpumem.open(); with "r" readers of other users get private copies, unless the files are trusted. OSError
    with ESTALE: the process has ended. FileNotFoundError: nothing was shared there. ValueError: not an index."""
    folder = os.fsdecode(directory)
    for attempt in itertools.count(1):
        try:
            return _attach(folder, mode)
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == _TRIES:
                raise
    raise AssertionError
