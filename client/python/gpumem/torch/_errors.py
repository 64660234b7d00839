# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The exception for safetensors files, which programs that use safetensors catch too."""

from __future__ import annotations

from typing import Any

_bases: tuple[Any, ...] = (ValueError,)
try:
    from safetensors import SafetensorError as _Theirs
    _bases = (_Theirs, ValueError)
except ImportError:
    pass


class SafetensorError(*_bases):  # type: ignore[misc]
    """A damaged file, a missing tensor or file, or a dtype that torch lacks. Also a safetensors.SafetensorError where
    safetensors is installed."""
