# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The interface of safetensors.safe_open."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

import torch

from . import _dtypes
from ._errors import SafetensorError
from ._file import File, device_of

_FRAMEWORKS = ("pt", "torch", "pytorch")


class Slice:
    """A tensor of an open file, of which parts are taken by slice[index]."""

    def __init__(self, file: File, name: str, device: torch.device) -> None:
        file.entry(name)
        self._file, self._name, self._device = file, name, device

    def get_shape(self) -> list[int]:
        return list(self._file.entry(self._name).shape)

    def get_dtype(self) -> str:
        """safetensors' name of the element type, such as "BF16"."""
        return _dtypes.CODES[self._file.entry(self._name).dtype.name]

    def __getitem__(self, index: Any) -> torch.Tensor:
        """tensor[index]. The index is torch's, and a wrong one fails as in torch."""
        return self._file.part(self._name, index, self._device)

    def to_device(self, device: Any = None, dtype: Optional[torch.dtype] = None, index: Any = ...) -> torch.Tensor:
        """tensor[index] on another device than the file was opened for, as dtype. device: None for the GPU of the
        file."""
        return self._file.part(self._name, index, None if device is None else device_of(device), dtype)


class safe_open:  # noqa: N801
    """A safetensors file with the interface of safetensors.safe_open, version 0.8.

    device: for which tensors are made; "cpu": tensors are read into system memory. backend: ignored, for
    compatibility. mode: see gpumem.torch; decides where tensors for the file's own GPU lie. Tensors for another GPU
    are copied there.

    SafetensorError: the file is damaged. OSError. PermissionError: mode "view" without permission."""

    def __init__(self, filename: Union[str, os.PathLike[Any]], framework: str = "pt", device: Any = "cpu", *,
                 backend: str = "mmap", mode: str = "auto") -> None:
        if framework not in _FRAMEWORKS:
            raise SafetensorError(f"framework {framework} is invalid: gpumem.torch has tensors of torch only")
        if backend not in ("mmap", "pread"):
            raise SafetensorError(f'backend {backend!r} is invalid (expected one of: "mmap", "pread")')
        self._device = device_of("cpu" if device is None else device)
        self._opened: Optional[File] = File(filename, mode)

    def _file(self) -> File:
        if self._opened is None:
            raise SafetensorError("File is closed")
        return self._opened

    def keys(self) -> list[str]:
        return sorted(self._file().header.tensors)

    def offset_keys(self) -> list[str]:
        tensors = self._file().header.tensors
        return sorted(tensors, key=lambda name: (tensors[name].offset, tensors[name].size))

    def metadata(self) -> Optional[dict[str, str]]:
        """None if the file has no metadata."""
        return dict(self._file().header.metadata) or None

    def get_tensor(self, name: str) -> torch.Tensor:
        return self._file().tensor(name, self._device)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        """All tensors, in the order of the file."""
        return self._file().load(dict.fromkeys(self.offset_keys(), self._device))

    def get_slice(self, name: str) -> Slice:
        return Slice(self._file(), name, self._device)

    def __enter__(self) -> safe_open:
        self._file()
        return self

    def __exit__(self, *_: object) -> None:
        """Slices and tensors stay valid."""
        self._opened = None
