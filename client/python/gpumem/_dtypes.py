# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Element types and their names in DLPack, in array interfaces and in safetensors files."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Optional


class Dtype(NamedTuple):
    """bits: of an element. code: DLDataTypeCode. typestr: for __cuda_array_interface__, or None if array interfaces
    lack the type. format: for struct and memoryview, or None."""

    name: str
    bits: int
    code: int
    typestr: Optional[str]
    format: Optional[str]

    @property
    def alignment(self) -> int:
        """The alignment that an element needs, in bytes."""
        return max(self.bits // 8, 1)

    def size_of(self, count: int) -> Optional[int]:
        """The size of count elements in bytes; None if the last element does not end at a byte."""
        return None if count * self.bits % 8 else count * self.bits // 8


_ORDER = "<" if sys.byteorder == "little" else ">"
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6


def _plain(name: str, code: int, letter: str, format: Optional[str], bits: int) -> Dtype:
    return Dtype(name, bits, code, f"{'|' if bits == 8 else _ORDER}{letter}{bits // 8}", format)


# The codes from 7 on are from DLPack 1.1.
_ALL = (
    _plain("bool", _BOOL, "b", "?", 8),
    *(_plain(f"int{bits}", _INT, "i", f, bits) for bits, f in ((8, "b"), (16, "h"), (32, "i"), (64, "q"))),
    *(_plain(f"uint{bits}", _UINT, "u", f, bits) for bits, f in ((8, "B"), (16, "H"), (32, "I"), (64, "Q"))),
    _plain("float16", _FLOAT, "f", None if sys.version_info < (3, 12) else "e", 16),
    _plain("float32", _FLOAT, "f", "f", 32),
    _plain("float64", _FLOAT, "f", "d", 64),
    _plain("complex64", _COMPLEX, "c", None, 64),
    _plain("complex128", _COMPLEX, "c", None, 128),
    Dtype("bfloat16", 16, _BFLOAT, None, None),
    Dtype("float8_e3m4", 8, 7, None, None),
    Dtype("float8_e4m3", 8, 8, None, None),
    Dtype("float8_e4m3b11fnuz", 8, 9, None, None),
    Dtype("float8_e4m3fn", 8, 10, None, None),
    Dtype("float8_e4m3fnuz", 8, 11, None, None),
    Dtype("float8_e5m2", 8, 12, None, None),
    Dtype("float8_e5m2fnuz", 8, 13, None, None),
    Dtype("float8_e8m0fnu", 8, 14, None, None),
    Dtype("float6_e2m3fn", 6, 15, None, None),
    Dtype("float6_e3m2fn", 6, 16, None, None),
    Dtype("float4_e2m1fn", 4, 17, None, None),
)
BY_NAME = {dtype.name: dtype for dtype in _ALL}
UINT8 = BY_NAME["uint8"]

SAFETENSORS = {code: BY_NAME[name] for code, name in {
    "BOOL": "bool",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F6_E2M3": "float6_e2m3fn", "F6_E3M2": "float6_e3m2fn", "F4": "float4_e2m1fn",
}.items()}


def _name_of(dtype: Any) -> str:
    """The name of a dtype: a string, a numpy or jax dtype or scalar type, or a torch dtype."""
    if isinstance(dtype, str):
        return dtype
    order = getattr(dtype, "byteorder", "=")
    if order in ("<", ">") and order != _ORDER:
        raise ValueError(f"dtype {dtype!r} is not in the byte order of this machine")
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(name)


def find(dtype: Any) -> Dtype:
    """The type for "float32", "F32", "bfloat16", numpy.float32, torch.float32 and the like.
    ValueError for any other."""
    if isinstance(dtype, Dtype):
        return dtype
    name = _name_of(dtype)
    short = name[len("torch."):] if name.startswith("torch.") else name.rstrip("_")
    found = BY_NAME.get(short) or SAFETENSORS.get(short)
    if not found:
        raise ValueError(f"unknown dtype {name!r}; known dtypes: {', '.join(BY_NAME)}")
    return found
