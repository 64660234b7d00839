# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The tensors of a model, one file after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import torch

from ..torch._load import SINGLE, open_model

MODES = ("auto", "view", "copy")


class Options(NamedTuple):
    """mode: see gpumem.torch. processed: the folder for weights that the engine has processed, or None."""

    mode: str
    processed: Optional[str]


def options_of(table: Any) -> Options:
    """An engine's options for its loader. ValueError: another option, or not a mode or a folder."""
    table = {} if table is None else table
    if not isinstance(table, dict):
        raise ValueError(f"options for load format gpumem are a table, not {table!r}")
    unknown = sorted(map(str, set(table) - set(Options._fields)))
    if unknown:
        raise ValueError(f"unknown options for load format gpumem: {', '.join(unknown)}")
    mode, processed = table.get("mode", "auto"), table.get("processed")
    if mode not in MODES:
        raise ValueError(f"mode for load format gpumem is 'auto', 'view' or 'copy', not {mode!r}")
    if processed is not None and (not isinstance(processed, str) or not os.path.isabs(processed)):
        raise ValueError(f"processed for load format gpumem is the absolute path of a folder, not {processed!r}")
    return Options(str(mode), processed)


def check_directory(path: Any) -> str:
    """ValueError: not a directory here."""
    name = os.fsdecode(path)
    if not os.path.isdir(name):
        raise ValueError(f"load format gpumem needs the directory of a model, such as /mnt/gpumem/gpu0/llama: "
                         f"{name!r} is not a directory")
    return name


def weights(directory: str, mode: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors, on the GPU of their file. Headers, index and types of all files are checked before the first
    tensor; the memory of a file is released before the next file, if the caller keeps no tensor."""
    places, files = open_model(directory, mode)
    names: dict[str, list[str]] = {shard: [] for shard in files}
    for tensor, shard in places.items():
        files[shard].torch_type(tensor)
        names[shard].append(tensor)
    if not places:
        raise ValueError(f"{os.path.join(directory, SINGLE)}: no tensors")
    return _all(files, names)


def _all(files: dict[str, Any], names: dict[str, list[str]]) -> Iterator[tuple[str, torch.Tensor]]:
    for shard in list(files):
        file = files.pop(shard)
        for tensor in sorted(names[shard], key=lambda name: int(file.entry(name).offset)):
            yield tensor, file.tensor(tensor, None)
