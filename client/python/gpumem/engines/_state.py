# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The state of a model: its tensors by their places, and all else as values that can be compared.

A place is a module's name, a kind, and the name there: "parameter" and "buffer" as torch has them, "temporary" for a
buffer that state_dict() leaves out, and "attribute" for a tensor in an attribute of the module or of an object in an
attribute ("impl.scale")."""

from __future__ import annotations

import enum
import types
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import torch

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, enum.Enum, type)
# What torch keeps in a module: tensors and modules are treated by themselves, and eval() changes the last.
_OF_TORCH = {"_parameters", "_buffers", "_non_persistent_buffers_set", "_modules", "training"}


class Place(NamedTuple):
    module: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of module {self.module or 'itself'!r}"


class _Same:
    """An object that is equal to itself alone."""

    def __init__(self, value: Any) -> None:
        self.value = value  # keeps the object alive, so that no later object has its address
        self.version = value._version if isinstance(value, torch.Tensor) else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value and self.version == other.version

    __hash__ = None  # type: ignore[assignment]


class State:
    """tensors: by place, with None where a tensor may come. rest: values by their place as text."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.tensors: dict[Place, Optional[torch.Tensor]] = {}
        self.rest: dict[str, Any] = {}
        self._seen: set[int] = set()
        for name, module in model.named_modules(remove_duplicate=False):
            self._module(name, module)

    def _module(self, name: str, module: torch.nn.Module) -> None:
        self.rest[f"module {name!r}"] = type(module)
        for key, parameter in module._parameters.items():
            self.tensors[Place(name, "parameter", key)] = parameter
        for key, tensor in module._buffers.items():
            kind = "temporary" if key in module._non_persistent_buffers_set else "buffer"
            self.tensors[Place(name, kind, key)] = tensor
        for key, value in vars(module).items():
            if key not in _OF_TORCH:
                self._value(name, key, value)

    def _value(self, module: str, path: str, value: Any, is_attribute: bool = True) -> None:
        """is_attribute: the path leads through attributes alone, so that a tensor there can be set again."""
        where = f"{path} of module {module!r}"
        if is_attribute and (value is None or isinstance(value, torch.Tensor)):
            self.tensors[Place(module, "attribute", path)] = value
        elif isinstance(value, _PLAIN):
            self.rest[where] = value
        elif isinstance(value, (torch.Tensor, torch.nn.Module)) or id(value) in self._seen:
            self.rest[where] = _Same(value)
        else:
            self._seen.add(id(value))
            self.rest[where] = _Same(value)
            for key, part, is_own in _parts(value):
                self._value(module, f"{path}{key}", part, is_attribute and is_own)


def _parts(value: Any) -> Iterator[tuple[str, Any, bool]]:
    """What an object consists of: the text that leads there, the part, and whether the part is an attribute."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"[{key!r}]", part, False
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield f"[{number}]", part, False
    elif isinstance(value, (set, frozenset)):
        yield "{}", repr(sorted(map(repr, value))), False
    elif not isinstance(value, types.ModuleType):
        names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
        for key in names:
            if hasattr(value, key):
                yield f".{key}", getattr(value, key), True


def difference(before: State, after: State) -> Optional[str]:
    """A place where two states differ in more than tensors, or None."""
    for where in {**before.rest, **after.rest}:
        if where not in before.rest or where not in after.rest or before.rest[where] != after.rest[where]:
            return where
    return None
