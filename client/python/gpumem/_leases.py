# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Leases of other processes."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Union

from . import _native


def drop_leases(path: Union[str, bytes, os.PathLike[Any]]) -> int:
    """Ends the leases of all processes on a file, for the file's owner and for root, and returns the number of
    leases. Afterwards the file can be shortened, rewritten and moved again. The processes keep their mappings;
    extend() of their buffers fails with ENOENT. Private copies stay.

    OSError: PermissionError for other users, ENOTSUP if the file is not on gpumemfs."""
    name, leases = _native.path_name(path), ctypes.c_uint64()
    _native.check(_native.library().gpumem_drop_leases(os.fsencode(name), ctypes.byref(leases)), name)
    return leases.value
