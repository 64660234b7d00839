# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Safetensors files in GPU memory as dicts of zero-copy tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Optional, Union

from . import _header, _modes
from ._memory import FileMemory
from ._views import View


class MisalignedError(ValueError):
    """A tensor does not lie where its elements can be addressed.

    name: of the tensor. offset: of its first byte in the file. alignment: what offset would have to be
    a multiple of."""

    def __init__(self, name: str, offset: int, alignment: int, path: str) -> None:
        super().__init__(
            f"tensor {name!r} of {path} begins at byte {offset} of the file, which is not a multiple of "
            f"{alignment}: rewrite the file with gpumem.align(), or ask for a copy with "
            "on_misaligned='copy'")
        self.name, self.offset, self.alignment, self.path = name, offset, alignment, path


class SafeTensors(Mapping[str, View]):
    """The tensors of an open file by name; a view is made, and a misaligned one judged, when it is
    asked for. Views keep the memory alive; close() gives up only this object's share of it."""

    def __init__(self, memory: FileMemory, header: _header.Header, on_misaligned: str,
                 alignment: Optional[int]) -> None:
        self._memory: Optional[FileMemory] = memory
        self._header, self._path = header, memory.name
        self._on_misaligned, self._alignment = on_misaligned, alignment

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: the file, which is opened again."""
        if self._memory is None:
            raise TypeError(f"{self._path} is closed, and cannot be pickled or copied")
        return dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._memory is None or self._header.file_size != self._memory.size:
            raise ValueError(f"{self._path} has changed its size since the object was pickled")

    @property
    def metadata(self) -> dict[str, str]:
        """__metadata__ of the file; {} where it has none."""
        return dict(self._header.metadata)

    @property
    def misaligned(self) -> list[str]:
        """Names of the tensors that cannot be viewed in place."""
        return [name for name in self if self._wanted(name)]

    def _wanted(self, name: str) -> int:
        """0 where the tensor lies right, else the alignment that it lacks."""
        tensor = self._header.tensors[name]
        alignment = self._alignment or tensor.dtype.alignment
        return alignment if tensor.size and tensor.offset % alignment else 0

    def __getitem__(self, name: str) -> View:
        """The tensor. KeyError: there is none of the name; MisalignedError; MemoryError: no room for
        its copy."""
        tensor = self._header.tensors[name]
        if self._memory is None:
            raise ValueError(f"{self._path} is closed")
        view = View(self._memory, tensor.dtype, tensor.shape, tensor.offset)
        alignment = self._wanted(name)
        if not alignment:
            return view
        if self._on_misaligned == "error":
            raise MisalignedError(name, tensor.offset, alignment, self._path)
        return view.copy()

    def __iter__(self) -> Iterator[str]:
        return iter(self._header.tensors)

    def __len__(self) -> int:
        return len(self._header.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._header.tensors

    def close(self) -> None:
        self._memory = None

    def __enter__(self) -> SafeTensors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gpumem.SafeTensors of {len(self)} tensors in {self._path}>"


def safetensors(path: Union[str, bytes, os.PathLike[Any]], mode: str = "r", on_misaligned: str = "error",
                alignment: Optional[int] = None) -> SafeTensors:
    """Opens a safetensors file that lies on gpumemfs.

    mode: as for gpumem.open(): "r+" gives views of the file's own memory. on_misaligned: what becomes of a tensor whose first byte is not at a
    multiple of its element's size, or of alignment (bytes, a power of two) where that is given:
    "error": asking for it is a MisalignedError; "copy": each time it is asked for it is copied on the
    GPU, to a multiple of 256; the copy is freed with the last tensor that uses it.

    ValueError: the file's header is not as the format has it, the file changed its size meanwhile, or an
    argument is wrong. OSError: as for gpumem.open()."""
    if on_misaligned not in ("error", "copy"):
        raise ValueError(f"on_misaligned is 'error' or 'copy', not {on_misaligned!r}")
    if alignment is not None:
        _header.check_alignment(alignment)
    # Through one descriptor, so that header and memory are of the same file whatever becomes of the path.
    fd = os.open(path, _modes.flags_of(mode) | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        memory = _modes.memory_check(FileMemory.open_fd(fd, os.fsdecode(path)), mode)
        header = _header.read(fd, memory.name)
    finally:
        os.close(fd)
    if header.file_size != memory.size:
        raise ValueError(f"{memory.name} changed its size while it was opened")
    return SafeTensors(memory, header, on_misaligned, alignment)
