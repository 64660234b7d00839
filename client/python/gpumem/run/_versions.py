# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Loads of a model by a path that leads through a link, as SET/current of a set of versions (docs/versions.md): each load
has one version whole, although a model is several files that are opened one after the other."""

from __future__ import annotations

import functools
import os
from typing import Any

from . import _mounts
from ._settings import say

_TRIES = 8
_NAME = "pretrained_model_name_or_path"  # of transformers


def _is_on_mount(folder: str) -> bool:
    with os.scandir(folder) as entries:
        file = next((entry.path for entry in entries if entry.is_file()), None)
    return _mounts.device_at(file) is not None


def _resolved(path: Any) -> Any:
    """The path without links, if it is a directory on a mount that a link leads to."""
    try:
        real = os.path.realpath(path)
        if real != os.path.abspath(path) and _is_on_mount(real):
            return real
    except (TypeError, OSError):
        pass
    return path


def change_loads(model: Any) -> None:
    """Resolves the path of Model.from_pretrained(path) once. A load that fails begins again if the path leads to another
    version by then: the earlier one may have been removed."""
    original = getattr(getattr(model, "__dict__", {}).get("from_pretrained"), "__func__", None)
    if original is None:
        return

    @functools.wraps(original)
    def from_pretrained(cls: Any, *arguments: Any, **options: Any) -> Any:
        path = arguments[0] if arguments else options.get(_NAME)
        for _ in range(_TRIES):
            found = _resolved(path)
            if arguments:
                arguments = (found, *arguments[1:])
            elif _NAME in options:
                options[_NAME] = found
            try:
                return original(cls, *arguments, **options)
            except OSError:
                if found is path or _resolved(path) == found:
                    raise
                say(f"{path} leads to another version than when the load began: the load begins again")
        return original(cls, *arguments, **options)
    model.from_pretrained = classmethod(from_pretrained)
