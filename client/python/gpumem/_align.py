# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Rewriting a safetensors file so that its tensors can be viewed where they lie."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter
from typing import Any, NamedTuple, Union

from . import _header
from ._replace import replacing

_PIECE = 16 << 20
_ALIGNMENT_MAX = 1 << 20


class AlignReport(NamedTuple):
    """What align() did. data_start: of the data in the new file, in bytes. aligned: names of the
    tensors that begin at a multiple of the alignment. viewable: of those that do not, but can be
    viewed in place because they begin at a multiple of their element's size. misaligned: of those that
    cannot be."""

    data_start: int
    aligned: list[str]
    viewable: list[str]
    misaligned: list[str]


def _padding(tensors: list[_header.Tensor], length: int, alignment: int) -> int:
    """Spaces behind a header of this length, for as many tensors as possible to be viewable and, of such
    places for the data, the one that aligns most; the fewest that do."""
    modulus = max([alignment, *(tensor.dtype.alignment for tensor in tensors)])
    data = [tensor for tensor in tensors if tensor.begin < tensor.end]
    viewable = Counter((t.dtype.alignment, -t.begin % t.dtype.alignment) for t in data)
    aligned = Counter(-t.begin % alignment for t in data)
    units = {unit for unit, _ in viewable}

    def value(start: int) -> tuple[int, int, int]:
        return (sum(viewable[unit, start % unit] for unit in units), aligned[start % alignment],
                -((start - 8 - length) % modulus))

    # Where nothing is aligned, only the place among the largest elements matters.
    starts = {8 + length, *range(min(modulus, 16)), *aligned}
    return (max(starts, key=value) - 8 - length) % modulus


def _report(header: _header.Header, start: int, alignment: int) -> AlignReport:
    report = AlignReport(start, [], [], [])
    for name, tensor in header.tensors.items():
        at = start + tensor.begin if tensor.begin < tensor.end else 0
        if at % tensor.dtype.alignment:
            report.misaligned.append(name)
        elif at % alignment:
            report.viewable.append(name)
        else:
            report.aligned.append(name)
    return report


def _write(fd: int, piece: Union[bytes, memoryview], offset: int) -> None:
    rest = memoryview(piece)
    while rest:
        done = os.pwrite(fd, rest, offset)
        rest, offset = rest[done:], offset + done


def _copy(source: int, target: int, offset: int, at: int, size: int) -> None:
    """Inside one filesystem by the filesystem: on a GPU, by the GPU."""
    with contextlib.suppress(OSError, AttributeError):
        while size:
            done = os.copy_file_range(source, target, size, offset, at)
            if not done:
                break
            size, offset, at = size - done, offset + done, at + done
    while size:
        piece = os.pread(source, min(size, _PIECE), offset)
        if not piece:
            raise ValueError("the file became shorter while it was copied")
        _write(target, piece, at)
        size, offset, at = size - len(piece), offset + len(piece), at + len(piece)


def _rewrite(source: int, target: int, header: _header.Header, text: bytes, file_size: int) -> None:
    data = file_size - header.data_start
    os.ftruncate(target, 8 + len(text) + data)
    _write(target, len(text).to_bytes(8, "little") + text, 0)
    _copy(source, target, header.data_start, 8 + len(text), data)


def _align(source: int, src: str, dst: Union[str, bytes, os.PathLike[Any]], alignment: int) -> AlignReport:
    status = os.fstat(source)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{src} is not a regular file")
    try:
        header = _header.read(source, status.st_size)
    except ValueError as error:
        raise ValueError(f"{src}: {error}") from None
    text = header.text.rstrip(b" ")
    text += b" " * _padding(list(header.tensors.values()), len(text), alignment)
    if len(text) > _header.HEADER_MAX:
        raise ValueError(f"{src}: its header has no room for padding")
    with replacing(os.fsdecode(dst), status.st_mode) as target:
        _rewrite(source, target, header, text, status.st_size)
    return _report(header, 8 + len(text), alignment)


def align(src: Union[str, bytes, os.PathLike[Any]], dst: Union[str, bytes, os.PathLike[Any]],
          alignment: int = 256) -> AlignReport:
    """Writes the safetensors file src to dst with its header padded by spaces, as the format allows, so
    that as many tensors as possible can be viewed in place, and as many of those as possible begin at
    a multiple of alignment (bytes, a power of two up to 1 MiB).

    All tensors move by the same number of bytes, so some may stay misaligned: the report has their
    names. Neither file has to be on gpumemfs; where both are on one GPU, the GPU copies. The new file is
    written beside dst and takes its place when it is complete: dst may be src, or a link to it, and until
    then, and after a failure, is what it was. It keeps its permissions; one that did not exist gets those
    of src.

    ValueError: src is no safetensors file, dst is there and no regular file, or alignment is wrong.
    OSError."""
    if not 1 <= alignment <= _ALIGNMENT_MAX or alignment & (alignment - 1):
        raise ValueError(f"alignment {alignment} is not a power of two from 1 to {_ALIGNMENT_MAX}")
    source = os.open(src, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return _align(source, os.fsdecode(src), dst, alignment)
    finally:
        os.close(source)
