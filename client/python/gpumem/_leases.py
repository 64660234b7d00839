# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Leases that other processes have of a file."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Union

from . import _native


def drop_leases(path: Union[str, bytes, os.PathLike[Any]]) -> int:
    """Ends the leases that all processes have of a file, for its owner and for root, and returns how many
    there were: the file can be made shorter, written anew and moved again. What those processes have
    mapped stays theirs, and extend() of their buffers is an OSError with ENOENT. Private copies stay.

    OSError: PermissionError for other users, ENOTSUP where the file is not on gpumemfs."""
    name, leases = _native.path_name(path), ctypes.c_uint64()
    _native.check(_native.library().gpumem_drop_leases(os.fsencode(name), ctypes.byref(leases)), name)
    return leases.value
