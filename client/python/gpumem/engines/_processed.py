# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The weights of a model as an engine has processed them (fused, quantised, split among ranks), in a safetensors file:
the bytes of each storage, and in the metadata the tensors in these storages. The next start of the same configuration
takes them from the file, and processes no weights."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, Optional

import torch

from ..torch import _tensors
from ..torch._errors import SafetensorError
from ..torch._file import File
from ..torch._save import save_file
from ._state import Place, State, difference

_METADATA = "gpumem.processed"
_KINDS = ("parameter", "buffer", "temporary", "attribute")
# Storages of whole multiples begin at a multiple in the file, so that a view of any type is aligned.
_ALIGNMENT = 256


class Unsaveable(Exception):
    """The state of the model is more than tensors can say. The text says which part."""


def key_of(configuration: Mapping[str, Any], directory: str) -> str:
    """A name for the weights that a configuration makes of a model's directory, as it is now."""
    files = []
    for name in sorted(os.listdir(directory)):
        if name.endswith((".safetensors", ".json")):
            found = os.stat(os.path.join(directory, name))
            files.append([name, found.st_size, found.st_mtime_ns])
    text = json.dumps({**configuration, "files": files}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# Saving


def _check_tensor(place: Place, tensor: torch.Tensor, old: Optional[torch.Tensor]) -> str:
    """How install() makes the tensor: "same": in the object that the new model has in this place."""
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        raise Unsaveable(f"{place} has layout {tensor.layout} on device {tensor.device}")
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) and (tensor is old or not vars(tensor)):
        return type(tensor).__name__
    if old is None or type(old) is not type(tensor) or vars(old).keys() != vars(tensor).keys() or \
            any(vars(old)[key] is not value for key, value in vars(tensor).items()):
        raise Unsaveable(f"{place} is of the new type {type(tensor).__name__}, or has new attributes")
    return "same"


def _padded(storage: Any) -> torch.Tensor:
    """The bytes of a storage as a tensor of a multiple of _ALIGNMENT bytes."""
    size = storage.nbytes()
    if size % _ALIGNMENT == 0:
        return _tensors.bytes_at(storage, 0, size)
    made = torch.zeros(size + -size % _ALIGNMENT, dtype=torch.uint8, device=storage.device)
    made[:size].copy_(_tensors.bytes_at(storage, 0, size))
    return made


def _describe(before: State, after: State) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The storages, and the metadata: objects are the distinct tensors, places say where each is."""
    storages: dict[str, torch.Tensor] = {}
    names: dict[tuple[str, int], str] = {}
    objects: list[dict[str, Any]] = []
    numbers: dict[int, int] = {}
    places: list[list[Any]] = []
    for place, tensor in after.tensors.items():
        if tensor is not None and id(tensor) not in numbers:
            kind = _check_tensor(place, tensor, before.tensors.get(place))
            storage = _tensors.storage_of(tensor.detach())
            where = (str(tensor.device), storage.data_ptr() if storage.nbytes() else -1 - len(names))
            if where not in names:
                names[where] = f"storage {len(names)}"
                storages[names[where]] = _padded(storage)
            numbers[id(tensor)] = len(objects)
            objects.append({"kind": kind, "storage": names[where], "dtype": str(tensor.dtype).removeprefix("torch."),
                            "shape": list(tensor.shape), "stride": list(tensor.stride()),
                            "offset": tensor.storage_offset(), "grad": tensor.requires_grad,
                            "cpu": tensor.device.type == "cpu"})
        places.append([*place, None if tensor is None else numbers[id(tensor)]])
    return storages, {"objects": objects, "places": places}


def save(path: str, before: State, model: torch.nn.Module) -> None:
    """before: the state of the model before its weights were loaded. Unsaveable. OSError, RuntimeError: as
    gpumem.torch.save_file()."""
    after = State(model)
    where = difference(before, after)
    if where is not None:
        raise Unsaveable(f"{where} is state that is not a tensor")
    storages, description = _describe(before, after)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    save_file(storages, path, {_METADATA: json.dumps(description)})


# Restoring


def _tensor(described: Mapping[str, Any], storages: Mapping[str, torch.Tensor]) -> torch.Tensor:
    room = storages[described["storage"]]
    room = room.cpu() if described["cpu"] else room
    dtype = getattr(torch, described["dtype"])
    shape, stride = list(map(int, described["shape"])), list(map(int, described["stride"]))
    offset = int(described["offset"])
    made = torch.empty(0, dtype=dtype, device=room.device)
    end = offset + sum((n - 1) * step for n, step in zip(shape, stride)) + 1 if 0 not in shape else 0
    if len(shape) != len(stride) or min([offset, *shape, *stride]) < 0 or end * made.element_size() > room.nelement():
        raise ValueError(f"a tensor of shape {shape} lies outside its storage")
    return made.set_(_tensors.storage_of(room), offset, shape, stride).requires_grad_(bool(described["grad"]))


def _owner(module: torch.nn.Module, path: str) -> tuple[Any, str]:
    """The object that has an attribute, and the attribute's name there. AttributeError."""
    *way, last = path.split(".")
    owner: Any = module
    for key in way:
        owner = getattr(owner, key)
    return owner, last


def _set(module: torch.nn.Module, place: Place, value: Any) -> None:
    owner, last = _owner(module, place.name)
    if place.kind == "parameter":
        owner.register_parameter(last, value)
    elif place.kind == "attribute":
        setattr(owner, last, value)
    else:
        owner.register_buffer(last, value, persistent=place.kind == "buffer")


class Weights:
    """The weights in a file, all of them ready before anything in a model changes."""

    def __init__(self, path: str, mode: str) -> None:
        """SafetensorError: damaged, or not made by save(). OSError."""
        file = File(path, mode)
        self._name = file.name
        try:
            described = json.loads(file.header.metadata[_METADATA])
            storages = file.load(dict.fromkeys(file.header.tensors))
            self._tensors = [_tensor(one, storages) for one in described["objects"]]
            self._kinds = [str(one["kind"]) for one in described["objects"]]
            self._places: dict[Place, Optional[int]] = {}
            for module, kind, name, number in described["places"]:
                self._places[Place(str(module), str(kind), str(name))] = number
                number is None or self._tensors[number]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
            raise SafetensorError(f"{path} has no weights of an engine: {error!r}") from None

    def _check(self, model: torch.nn.Module, state: State) -> None:
        """KeyError, AttributeError, TypeError, ValueError: the weights are of another model."""
        for place, number in self._places.items():
            owner, _ = _owner(model.get_submodule(place.module), place.name)
            if place.kind not in _KINDS or (place.kind != "attribute" and not isinstance(owner, torch.nn.Module)):
                raise ValueError(f"{place} does not exist")
            if number is None or self._kinds[number] != "same":
                continue
            old, new = state.tensors[place], self._tensors[number]
            if old is None or old.dtype != new.dtype or old.device != new.device:
                raise ValueError(f"{place} has another type")

    def install(self, model: torch.nn.Module) -> None:
        """Gives a model the weights. SafetensorError: they are of another model, and this model is as it was."""
        state = State(model)
        try:
            self._check(model, state)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise SafetensorError(f"{self._name} has the weights of another model: {error!r}") from None
        objects: dict[int, torch.Tensor] = {}
        # All parameters and buffers, so that they come in the order in which the engine has left them. Layers may have
        # one module in common (vLLM's rotary embeddings), which then has a place for each.
        removed = set()
        for place in state.tensors:
            owner, last = _owner(model.get_submodule(place.module), place.name)
            if (place.kind != "attribute" or place not in self._places) and (id(owner), last) not in removed:
                delattr(owner, last)
                removed.add((id(owner), last))
        for place, number in self._places.items():
            if number is not None and number not in objects:
                objects[number] = self._object(number, state.tensors.get(place))
            _set(model.get_submodule(place.module), place, None if number is None else objects[number])

    def _object(self, number: int, old: Optional[torch.Tensor]) -> torch.Tensor:
        kind, tensor = self._kinds[number], self._tensors[number]
        if kind == "same":
            assert old is not None
            old.data = tensor
            return old
        return torch.nn.Parameter(tensor, requires_grad=tensor.requires_grad) if kind == "Parameter" else tensor
