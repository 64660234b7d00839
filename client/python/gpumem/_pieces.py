# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Descriptors of a file's memory, for imports by other interfaces."""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

from . import _native

_HANDLES = {1: "cuda", 2: "opaque", 4: "dmabuf"}


class Piece(NamedTuple):
    """A piece of a file's memory. The file descriptor belongs to the caller: an import takes it over, or leaves it to be
    closed. handles: the kinds of the descriptor: "cuda" for cuMemImportFromShareableHandle, "opaque" for Vulkan and
    imports of external memory, "dmabuf". memory_size: of the descriptor's memory, for the import; the piece begins at
    memory_offset there, and at offset in the file. uuid: of the GPU."""

    fd: int
    handles: frozenset[str]
    offset: int
    size: int
    memory_offset: int
    memory_size: int
    uuid: bytes

    def __reduce__(self) -> Any:
        """For pickle and copy: the number of a descriptor is another file's in another process, and two copies would
        close the descriptor twice."""
        raise TypeError("a Piece has a descriptor, and cannot be pickled or copied: send the descriptor by "
                        "multiprocessing.reduction.send_handle()")

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.fd)


def pieces(handle: int, for_reading: bool, name: str) -> list[Piece]:
    export, n = _native.library().gpumem_export, ctypes.c_size_t()
    flags = _native.EXPORT_FOR_READING if for_reading else 0
    _native.check(export(handle, flags, None, ctypes.byref(n)), name)
    found = (_native.Piece * n.value)()
    _native.check(export(handle, flags, found, ctypes.byref(n)), name)
    return [Piece(piece.fd, frozenset(text for bit, text in _HANDLES.items() if piece.handles & bit), piece.offset,
                  piece.bytes, piece.memory_offset, piece.memory_bytes, bytes(piece.uuid)) for piece in found[:n.value]]
