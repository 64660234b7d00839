# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The header of a safetensors file, read as hostile input: whatever is wrong is a ValueError that
names the tensor and the fact.

A file is: 8 bytes, N (little-endian); N bytes of JSON, which begin with "{" and may end in spaces;
the data, which the tensors cover without holes or overlaps. Offsets count from the data's begin.

client/lib/safetensors.c accepts the same; change both or neither."""

from __future__ import annotations

import json
import math
import os
from typing import Any, NamedTuple

from ._dtypes import SAFETENSORS, Dtype

HEADER_MAX = 100_000_000
_NUMBER_MAX = 2**63 - 1
_DIGITS_MAX = 19


class Tensor(NamedTuple):
    """begin, end: in the data."""

    dtype: Dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """text: as in the file, padding included. tensors: in the order of the file's header."""

    text: bytes
    tensors: dict[str, Tensor]
    metadata: dict[str, str]

    @property
    def data_start(self) -> int:
        """Of the data, in the file."""
        return 8 + len(self.text)


def _shown(name: str) -> str:
    return repr(name if len(name) <= 200 else name[:200] + "...")


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > _DIGITS_MAX:
        raise ValueError(f"the number {text[:30]}... is too large")
    return int(text)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text[:30]} is not an integer")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"{_shown(key)} is there twice")
        made[key] = value
    return made


def _load(text: bytes) -> dict[str, Any]:
    if text[:1] != b"{":
        raise ValueError("the header does not begin with '{'")
    try:
        loaded = json.loads(text.decode("utf-8"), object_pairs_hook=_object, parse_int=_integer,
                            parse_float=_no_number, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise ValueError(f"the header is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise ValueError("the header is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the header is not as the format has it: {error}") from None
    return loaded  # an object, because it begins with one


def _check_text(name: str, what: str) -> None:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{what} {_shown(name)} is not Unicode text") from None


def _numbers(name: str, field: str, value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(v) is int and 0 <= v <= _NUMBER_MAX for v in value):
        raise ValueError(f"tensor {_shown(name)}: {field} is not a list of numbers from 0 to 2^63-1")
    return value


def _size(name: str, dtype: Dtype, shape: list[int]) -> int:
    if math.prod(n for n in shape if n) > _NUMBER_MAX:
        raise ValueError(f"tensor {_shown(name)}: its shape {shape} is too large")
    size = dtype.size_of(math.prod(shape))
    if size is None:
        raise ValueError(f"tensor {_shown(name)}: {shape} of {dtype.bits} bits do not end at a byte")
    return size


def _tensor(name: str, entry: Any, data_size: int) -> Tensor:
    if not isinstance(entry, dict):
        raise ValueError(f"tensor {_shown(name)}: its entry is not an object")
    missing = [field for field in ("dtype", "shape", "data_offsets") if field not in entry]
    if missing:
        raise ValueError(f"tensor {_shown(name)}: no {missing[0]}")
    code = entry["dtype"]
    dtype = SAFETENSORS.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise ValueError(f"tensor {_shown(name)}: unknown dtype {_shown(str(code))}")
    shape = _numbers(name, "shape", entry["shape"])
    offsets = _numbers(name, "data_offsets", entry["data_offsets"])
    if len(offsets) != 2:
        raise ValueError(f"tensor {_shown(name)}: data_offsets are {len(offsets)} numbers, not 2")
    begin, end = offsets
    if begin > end:
        raise ValueError(f"tensor {_shown(name)}: it begins at {begin}, behind its end at {end}")
    if end > data_size:
        raise ValueError(f"tensor {_shown(name)}: it ends at {end}; the file has {data_size} bytes of data")
    size = _size(name, dtype, shape)
    if end - begin != size:
        raise ValueError(f"tensor {_shown(name)}: {dtype.name} of shape {shape} are {size} bytes, "
                         f"but its data_offsets hold {end - begin}")
    return Tensor(dtype, tuple(shape), begin, end)


def _check_cover(tensors: dict[str, Tensor], data_size: int) -> None:
    at, before = 0, ""
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if tensor.begin < at:
            raise ValueError(f"tensor {_shown(name)} overlaps {_shown(before)}: it begins at "
                             f"{tensor.begin}, where that one ends at {at}")
        if tensor.begin > at:
            raise ValueError(f"tensor {_shown(name)} begins at {tensor.begin}: the bytes from {at} on "
                             "belong to none")
        at, before = tensor.end, name
    if at != data_size:
        raise ValueError(f"the tensors end at {at}; the file has {data_size} bytes of data")


def _metadata(entry: Any) -> dict[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise ValueError("__metadata__ is not an object of strings")
    for key, value in entry.items():
        _check_text(key, "in __metadata__,")
        _check_text(value, "in __metadata__,")
    return entry


def parse(text: bytes, data_size: int) -> Header:
    """The header of a file with so many bytes of data. ValueError."""
    loaded = _load(text)
    metadata = _metadata(loaded.pop("__metadata__", {}))
    tensors = {}
    for name, entry in loaded.items():
        _check_text(name, "the tensor name")
        tensors[name] = _tensor(name, entry, data_size)
    _check_cover(tensors, data_size)
    return Header(text, tensors, metadata)


def _read(fd: int, size: int, offset: int) -> bytes:
    pieces = []
    while size:
        piece = os.pread(fd, min(size, 1 << 24), offset)
        if not piece:
            raise ValueError(f"the file ended at byte {offset} while its header was read")
        pieces.append(piece)
        size, offset = size - len(piece), offset + len(piece)
    return b"".join(pieces)


def read(fd: int, file_size: int) -> Header:
    """Of an open file of so many bytes. ValueError; OSError of the reading."""
    if file_size < 8:
        raise ValueError(f"a file of {file_size} bytes is no safetensors file")
    length = int.from_bytes(_read(fd, 8, 0), "little")
    if length > HEADER_MAX:
        raise ValueError(f"a header of {length} bytes is more than the format allows ({HEADER_MAX})")
    if length > file_size - 8:
        raise ValueError(f"a header of {length} bytes does not fit into the file of {file_size}")
    return parse(_read(fd, length, 8), file_size - 8 - length)
