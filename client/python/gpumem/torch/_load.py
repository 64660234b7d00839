# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Whole files, and models of several files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Optional, Union

import torch

from . import _tensors
from ._errors import SafetensorError
from ._file import File, device_of

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
Path = Union[str, "os.PathLike[str]"]


def load_file(filename: Path, device: Any = None, mode: str = "auto") -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file.

    device: None for the GPU of the file; "cpu" for a file that is not in a GPU's memory. mode: see gpumem.torch.

    SafetensorError: the file is damaged, or has a dtype that torch lacks. OSError. PermissionError: mode "view" without
    permission. torch.cuda.OutOfMemoryError, or OSError with ENOSPC: no room on the GPU."""
    file = File(filename, mode)
    made = file.load(dict.fromkeys(file.header.tensors, None if device is None else device_of(device)))
    _tensors.synchronize(tensor.device for tensor in made.values())
    return made


def _read_index(name: str) -> dict[str, str]:
    """The file of each tensor, from an index file."""
    with open(name, encoding="utf-8") as file:
        try:
            found = json.load(file)["weight_map"]
        except (ValueError, KeyError, TypeError) as error:
            raise SafetensorError(f"{name} is no index of safetensors files: {error!r}") from None
    if not isinstance(found, dict) or not all(isinstance(shard, str) for shard in found.values()):
        raise SafetensorError(f"{name}: weight_map is not a table of files by tensor")
    for tensor, shard in found.items():
        if os.path.basename(shard) != shard or shard in ("", ".", ".."):
            raise SafetensorError(f"{name}: tensor {tensor!r} is in {shard!r}, which is not a file of this directory")
    return found


def _open_shards(directory: str, places: Mapping[str, str], mode: str) -> dict[str, File]:
    """All files of an index, each checked for all of its tensors."""
    files: dict[str, File] = {}
    for tensor, shard in places.items():
        name = os.path.join(directory, shard)
        if shard not in files:
            try:
                files[shard] = File(name, mode)
            except FileNotFoundError as error:
                raise FileNotFoundError(error.errno, f"the file of tensor {tensor!r} is missing", name) from None
        if tensor not in files[shard].header.tensors:
            raise SafetensorError(f"{name} does not contain tensor {tensor!r}, which {INDEX} places there")
    return files


def open_model(folder: str, mode: str) -> tuple[dict[str, str], dict[str, File]]:
    """The file of each tensor of a model by its name, and the files by their names. model.safetensors comes first, as
    in transformers: an index beside that file may be old."""
    single, index = os.path.join(folder, SINGLE), os.path.join(folder, INDEX)
    if not os.path.isfile(single) and os.path.isfile(index):
        places = _read_index(index)
        return places, _open_shards(folder, places, mode)
    file = File(single, mode)
    return dict.fromkeys(file.header.tensors, SINGLE), {SINGLE: file}


def _device_for(tensor: str, device_map: Any) -> Optional[torch.device]:
    """The device of the longest prefix of a tensor's name in the map."""
    if device_map is None:
        return None
    if not isinstance(device_map, Mapping):
        return device_of(device_map)
    prefix = tensor
    while prefix not in device_map:
        if not prefix:
            raise ValueError(f"device_map has no device for tensor {tensor!r}")
        prefix = prefix.rpartition(".")[0]
    return None if device_map[prefix] is None else device_of(device_map[prefix])


def load_model(directory: Path, device_map: Any = None, mode: str = "auto") -> dict[str, torch.Tensor]:
    """All tensors of a model: of model.safetensors, or without that file, of those that model.safetensors.index.json
    names.

    device_map: None: each tensor on the GPU of its file; a device for all; or a dict of devices by prefix of the
    tensors' names ("model.layers.0", "" for the rest), as transformers has. mode: see gpumem.torch.

    All headers are read and compared with the index before the first tensor is loaded. FileNotFoundError: the directory
    has neither file, or a file of the index is missing. SafetensorError: a file lacks a tensor; and as load_file()."""
    places, files = open_model(os.fsdecode(directory), mode)
    wanted: dict[str, dict[str, Optional[torch.device]]] = {}
    for tensor, shard in places.items():
        wanted.setdefault(shard, {})[tensor] = _device_for(tensor, device_map)
    made: dict[str, torch.Tensor] = {}
    for shard, tensors in wanted.items():
        made.update(files[shard].load(tensors))
    _tensors.synchronize(tensor.device for tensor in made.values())
    return {tensor: made[tensor] for tensor in places}
