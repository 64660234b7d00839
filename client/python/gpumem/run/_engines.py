# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""vLLM and SGLang. Both iterate over the tensors of a model's files by a function of the same name, which reads them to
the CPU; here tensors of files in a GPU's memory stay on this GPU until the engine copies them into its parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from . import _mounts, _safetensors
from ._settings import say

_FILES = "hf_weights_files"
# How the engine would read the files, which says nothing about the tensors.
_MANNERS = {"use_tqdm_on_load", "is_all_weights_sharded", "disable_mmap", "prefetch",
            "safetensors_prefetch_num_threads", "safetensors_prefetch_block_size"}
_STRATEGIES = (None, "lazy", "eager", "prefetch")


def _is_plain(arguments: dict[str, Any]) -> bool:
    """Whether all tensors of the files are wanted as they are: an argument that this hook does not know must not say
    anything."""
    wanted = {name: value for name, value in arguments.items() if name != _FILES and name not in _MANNERS}
    return wanted.pop("safetensors_load_strategy", None) in _STRATEGIES and not any(wanted.values())


def _is_in_gpus(files: Any) -> bool:
    devices = [_mounts.device_at(_mounts.path_of(file)) for file in files]
    return bool(devices) and not any(device in (None, "host") for device in devices)


def _tensors(files: Any) -> Iterator[tuple[str, Any]]:
    for path in files:
        with _safetensors.safe_open(path) as file:
            for name in file.keys():
                yield name, file.get_slice(name).to_device()


def change(module: ModuleType) -> None:
    original: Any = getattr(module, "safetensors_weights_iterator", None)
    engine = module.__name__.partition(".")[0]
    try:
        signature = inspect.signature(original)
    except (TypeError, ValueError):
        signature = inspect.Signature()
    if list(signature.parameters)[:1] != [_FILES]:
        say(f"this version of {engine} is not known: weights are read to the CPU first")
        return

    @functools.wraps(original)
    def safetensors_weights_iterator(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options).arguments
        if _is_plain(bound) and _is_in_gpus(bound[_FILES]) and _safetensors.is_possible():
            return _tensors(bound[_FILES])
        return original(*arguments, **options)
    module.safetensors_weights_iterator = safetensors_weights_iterator  # type: ignore[attr-defined]
