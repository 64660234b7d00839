# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""safetensors.safe_open, which safetensors.torch.load_file and other frameworks call."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any, Optional

from . import _mounts, _report
from ._settings import MODE, say

_FRAMEWORKS = ("pt", "torch", "pytorch")
_replaced: dict[Any, type] = {}  # the replacement of each safe_open of safetensors
_said = False


def _is_known(device: Any) -> bool:
    """Whether tensors for the device are for gpumem.torch to make: for the CPU or a GPU of CUDA."""
    name = str(device)
    return device is None or isinstance(device, int) or name == "cpu" or name.partition(":")[0] == "cuda"


def _file_of(filename: Any, framework: Any, device: Any = "cpu", *, backend: str = "mmap") -> Optional[str]:
    """The path, if gpumem.torch is to open the file. TypeError: arguments that safetensors 0.8 lacks."""
    if framework not in _FRAMEWORKS or backend not in ("mmap", "pread") or not _is_known(device):
        return None
    path = _mounts.path_of(filename)
    return None if _mounts.device_at(path) is None else path


def _opener() -> Any:
    """gpumem.torch.safe_open, or None where it cannot work, which is said once."""
    global _said
    try:
        import gpumem.torch
        from gpumem import _native
        _native.library()
    except (ImportError, OSError, AttributeError) as error:
        if not _said:
            say(f"files on a mount are read by safetensors: {error}")
        _said = True
        return None
    _report.watch()
    return gpumem.torch.safe_open


def is_possible() -> bool:
    """Whether gpumem.torch works here; the reason against is said once."""
    return _opener() is not None


def safe_open(path: Any) -> Any:
    """Opens a file on a mount, where is_possible()."""
    _report.opened(os.fsdecode(path))
    return _opener()(path, "pt", mode=MODE)


def _open(arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The file as gpumem.torch opens it, or None: the file is for safetensors. Errors of the file are raised."""
    try:
        path = _file_of(*arguments, **options)
    except TypeError:
        return None
    opener = _opener() if path is not None else None
    if path is None or opener is None:
        return None
    _report.opened(path)
    return opener(*arguments, **options, mode=MODE)


class _Meta(type):
    """Files that gpumem.torch opened are instances of the class too; all else is the original's."""

    original: Any

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        file = _open(arguments, options)
        return cls.original(*arguments, **options) if file is None else file

    def __instancecheck__(cls, instance: Any) -> bool:
        ours = sys.modules.get("gpumem.torch")
        return isinstance(instance, cls.original) or (ours is not None and isinstance(instance, ours.safe_open))

    def __subclasscheck__(cls, other: Any) -> bool:
        return other is cls or issubclass(other, cls.original)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.original, name)


def _replacement(original: Any) -> Any:
    if isinstance(original, _Meta):
        return original
    if original not in _replaced:
        names = {"original": original, "__doc__": original.__doc__, "__module__": "safetensors"}
        _replaced[original] = _Meta("safe_open", (), names)
    return _replaced[original]


def change_name(module: ModuleType) -> None:
    """For a module that may have taken the name safe_open from safetensors."""
    original = getattr(module, "safe_open", None)
    if isinstance(original, type):
        module.safe_open = _replacement(original)  # type: ignore[attr-defined]


def change(module: ModuleType) -> None:
    version = str(getattr(module, "__version__", "of no version"))
    if not version.startswith("0.") or not isinstance(getattr(module, "safe_open", None), type):
        say(f"safetensors {version} is not known: files on a mount are read by safetensors")
        return
    change_name(module)
