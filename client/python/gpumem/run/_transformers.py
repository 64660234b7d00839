# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""transformers. Its files are opened by safetensors.safe_open; here tensors go straight to their device, and memory of
the size of the model is not allocated before views are loaded."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Iterable
from types import ModuleType
from typing import Any, Optional

from . import _mounts, _safetensors, _versions
from ._settings import MODE, say

_loading = threading.local()  # files: those of the load in this thread, or None


def _version() -> str:
    return str(getattr(sys.modules.get("transformers"), "__version__", "of no version"))


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _say_unknown(what: str) -> None:
    say(f"transformers {_version()} is not known: {what}")


def _is_gpu(device: Any) -> bool:
    import torch
    try:
        return device is not None and torch.device(device).type == "cuda"
    except (RuntimeError, TypeError):
        return False


def change_loading(module: ModuleType) -> None:
    """transformers 5 gives each slice of a file to this function, in a thread of its own."""
    original = getattr(module, "_materialize_copy", None)
    if not _version().startswith("5.") or _parameters(original) != ["tensor", "device", "dtype"]:
        _say_unknown("its tensors are read to the CPU first")
        return

    @functools.wraps(original)  # type: ignore[arg-type]
    def _materialize_copy(tensor: Any, device: Any = None, dtype: Any = None) -> Any:
        ours = sys.modules.get("gpumem.torch")
        if ours is not None and isinstance(tensor, ours.Slice) and _is_gpu(device):
            return tensor.to_device(device, dtype)
        return original(tensor, device, dtype)  # type: ignore[misc]
    module._materialize_copy = _materialize_copy  # type: ignore[attr-defined]


def _needs_no_room(files: Optional[Iterable[Any]]) -> bool:
    """Whether all files of a load are in a GPU's memory, and their tensors take none of torch's: views, and private
    copies, which the daemon makes."""
    devices = [_mounts.device_at(_mounts.path_of(file)) for file in files or ()]
    return MODE != "copy" and bool(devices) and not any(device in (None, "host") for device in devices)


def _watch_load(model: Any) -> bool:
    """Notes the files of each load. False: the function is not as transformers 4 and 5 have it."""
    place = vars(model).get("_load_pretrained_model")
    original = getattr(place, "__func__", None)
    if not isinstance(place, (staticmethod, classmethod)) or "checkpoint_files" not in _parameters(original):
        return False
    signature = inspect.signature(original)  # type: ignore[arg-type]

    @functools.wraps(original)  # type: ignore[arg-type]
    def _load_pretrained_model(*arguments: Any, **options: Any) -> Any:
        outer = getattr(_loading, "files", None)
        try:
            _loading.files = signature.bind(*arguments, **options).arguments.get("checkpoint_files")
        except TypeError:
            _loading.files = None
        try:
            return original(*arguments, **options)  # type: ignore[misc]
        finally:
            _loading.files = outer
    model._load_pretrained_model = type(place)(_load_pretrained_model)
    return True


def change_modeling(module: ModuleType) -> None:
    """Skips the allocation of the whole model's size for a load that takes no memory of torch's."""
    _safetensors.change_name(module)
    _versions.change_loads(getattr(module, "PreTrainedModel", None))
    original = getattr(module, "caching_allocator_warmup", None)
    if _version().startswith("4.") and original is None:
        return
    known = _version().startswith(("4.", "5.")) and _parameters(original)[:2] == ["model", "expanded_device_map"]
    if not known or not _watch_load(getattr(module, "PreTrainedModel", None)):
        _say_unknown("memory of the size of the model is allocated before a load")
        return

    @functools.wraps(original)  # type: ignore[arg-type]
    def caching_allocator_warmup(*arguments: Any, **options: Any) -> Any:
        if _needs_no_room(getattr(_loading, "files", None)):
            return None
        return original(*arguments, **options)  # type: ignore[misc]
    module.caching_allocator_warmup = caching_allocator_warmup  # type: ignore[attr-defined]


def change_auto(module: ModuleType) -> None:
    """AutoModel.from_pretrained reads the configuration before the class of the model reads the weights."""
    _versions.change_loads(getattr(module, "_BaseAutoModelClass", None))
