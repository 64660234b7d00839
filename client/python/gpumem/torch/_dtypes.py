# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Element types in safetensors files and in torch."""

from __future__ import annotations

from typing import Optional

import torch

from .._dtypes import SAFETENSORS, Dtype

# torch packs two elements of F4 in one.
_PACKED = {"float4_e2m1fn": "float4_e2m1fn_x2"}

CODES = {dtype.name: code for code, dtype in SAFETENSORS.items()}


def _of_torch(dtype: Dtype) -> Optional[torch.dtype]:
    return getattr(torch, _PACKED.get(dtype.name, dtype.name), None)


_TORCH = {dtype.name: _of_torch(dtype) for dtype in SAFETENSORS.values()}
_FROM_TORCH = {found: SAFETENSORS[CODES[name]] for name, found in _TORCH.items() if found is not None}


def to_torch(dtype: Dtype) -> Optional[torch.dtype]:
    """None if this torch lacks the type."""
    return _TORCH.get(dtype.name)


def from_torch(dtype: torch.dtype) -> Optional[Dtype]:
    """None if safetensors files lack the type."""
    return _FROM_TORCH.get(dtype)


def is_packed(dtype: Dtype) -> bool:
    return dtype.name in _PACKED
