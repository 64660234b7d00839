# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Files that are made from tensors."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional, Union

import torch

from .. import _header, _native
from .._dtypes import Dtype
from .._memory import FileMemory
from . import _dtypes, _tensors
from ._errors import SafetensorError

_HEADER_MAX = 100_000_000


class _Place(NamedTuple):
    tensor: torch.Tensor
    dtype: Dtype
    begin: int
    size: int


def _check_kinds(tensors: Mapping[str, torch.Tensor]) -> None:
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise ValueError(f"Key `{name!r}` is invalid as the name of a tensor")
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
        if tensor.device.type == "meta":
            raise ValueError(f"tensor {name!r} is on the meta device and has no data")
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise ValueError(f"You are trying to save a sparse tensors: `{sparse}` which this library does not support. You "
                         "can make it a dense tensor before saving with `.to_dense()` but be aware this might make a "
                         "much larger file than needed.")


def _shared(tensors: Mapping[str, torch.Tensor]) -> list[set[str]]:
    """The groups of tensors that overlap."""
    areas = sorted((str(tensor.device), tensor.data_ptr(), tensor.nelement() * tensor.element_size(), name)
                   for name, tensor in tensors.items() if tensor.nelement())
    groups: list[set[str]] = []
    last, end = "", 0
    for device, begin, size, name in areas:
        if device == last and begin < end:
            groups[-1].add(name)
        else:
            groups.append({name})
            last, end = device, 0
        end = max(end, begin + size)
    return [group for group in groups if len(group) > 1]


def _check(tensors: Mapping[str, torch.Tensor], metadata: Any) -> None:
    """The errors of safetensors.torch.save_file."""
    _check_kinds(tensors)
    for name, tensor in tensors.items():
        if _dtypes.from_torch(tensor.dtype) is None:
            raise ValueError(f"tensor {name!r} has dtype {tensor.dtype}, which safetensors files lack")
    shared = _shared(tensors)
    if shared:
        raise RuntimeError(f"Some tensors share memory, this will lead to duplicate memory on disk and potential "
                           f"differences when loading them again: {shared}. Save only one of each group, or use "
                           "safetensors.torch.save_model.")
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. It either "
                             "means you are trying to save tensors which are reference of each other in which case it's "
                             "recommended to save only the full tensors, and reslice at load time, or simply call "
                             "`.contiguous()` on your tensor to pack it before saving.")
    if metadata is not None and not all(isinstance(text, str) for pair in metadata.items() for text in pair):
        raise TypeError("metadata is a dict of strings by strings")


def _layout(tensors: Mapping[str, torch.Tensor], alignment: int) -> dict[str, _Place]:
    """The place of each tensor in the data. The format has no gaps between tensors. So tensors of whole multiples of
    the alignment come first: all of them are aligned; then by size of their elements, so that each can be viewed."""
    def order(name: str) -> tuple[bool, int, str]:
        tensor = tensors[name]
        size = tensor.nelement() * tensor.element_size()
        return size % max(alignment, 16) != 0, -tensor.element_size(), name
    places: dict[str, _Place] = {}
    begin = 0
    for name in sorted(tensors, key=order):
        tensor = tensors[name]
        size = tensor.nelement() * tensor.element_size()
        dtype = _dtypes.from_torch(tensor.dtype)
        assert dtype is not None
        places[name] = _Place(tensor, dtype, begin, size)
        begin += size
    return places


def _shape(place: _Place) -> list[int]:
    shape = list(place.tensor.shape)
    return [*shape[:-1], shape[-1] * 2] if _dtypes.is_packed(place.dtype) else shape


def _pack_header(places: Mapping[str, _Place], metadata: Optional[Mapping[str, str]], alignment: int) -> bytes:
    """The header, padded so that the data begins at a multiple of the alignment."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    header.update((name, {"dtype": _dtypes.CODES[place.dtype.name], "shape": _shape(place),
                          "data_offsets": [place.begin, place.begin + place.size]}) for name, place in places.items())
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % max(alignment, 8))
    if len(text) > _HEADER_MAX:
        raise SafetensorError(f"a header of {len(text)} bytes is too large for a safetensors file")
    return len(text).to_bytes(8, "little") + text


def _fill(storage: Any, header: bytes, places: Mapping[str, _Place], name: str) -> None:
    """Copies header and tensors into a file's storage, and waits for the copies. All targets are made by one call: a
    model has hundreds of tensors, and the GPU copies them faster than Python makes a tensor for each."""
    sizes = [len(header), *(place.size for place in places.values())]
    with torch.no_grad():
        start, *targets = _tensors.bytes_at(storage, 0, sum(sizes)).split(sizes)
        start.copy_(torch.frombuffer(bytearray(header), dtype=torch.uint8))
        for (key, place), target in zip(places.items(), targets):
            if not place.size:
                continue
            source = place.tensor.resolve_conj().resolve_neg().view(-1).view(torch.uint8)
            try:
                target.copy_(source)
            except RuntimeError as error:
                raise type(error)(f"{name}: tensor {key!r}: {error}") from error
    _tensors.synchronize({place.tensor.device for place in places.values()} | {torch.device(storage.device)})


def _save_elsewhere(tensors: dict[str, torch.Tensor], name: str, metadata: Any, error: OSError) -> None:
    try:
        from safetensors.torch import save_file as save
    except ImportError:
        raise OSError(errno.ENOTSUP, "not on gpumemfs, and safetensors is not installed", name) from error
    save(tensors, name, metadata=metadata)


def save_file(tensors: dict[str, torch.Tensor], filename: Union[str, os.PathLike[str]],
              metadata: Optional[Mapping[str, str]] = None, alignment: int = 256) -> None:
    """Saves tensors as a safetensors file, whole or not at all: until all is written, the path leads to the old file.

    The GPU copies tensors of its own memory; other tensors are copied there. The data begins at a multiple of
    alignment (bytes, a power of two up to 1 MiB), followed first by all tensors of whole multiples of alignment, so
    that these are aligned; every other tensor is at least aligned for its elements. A file that is not on gpumemfs is
    saved by safetensors, where safetensors is installed.

    ValueError, RuntimeError: as safetensors.torch.save_file() has them: tensors that are sparse, not contiguous or
    share memory. OSError: ENOSPC, EDQUOT: no room; ENOTSUP: not on gpumemfs; and the errors of gpumem.create()."""
    _header.check_alignment(alignment)
    if alignment > 1 << 20:
        raise ValueError(f"alignment {alignment} is more than 1 MiB")
    _check(tensors, metadata)
    places = _layout(tensors, alignment)
    header = _pack_header(places, metadata, alignment)
    name = _native.path_name(filename)
    size = len(header) + sum(place.size for place in places.values())
    try:
        memory = FileMemory.create(name, size, _native.CREATE_PENDING)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return _save_elsewhere(tensors, name, metadata, error)
    reachable = _tensors.is_reachable(memory)
    _fill((_tensors.storage_over if reachable else _tensors.storage_for_cpu)(memory), header, places, name)
    if not reachable:
        memory.flush()
    memory.publish()


def empty(path: Union[str, os.PathLike[str]], shape: Union[int, Iterable[int]], dtype: Optional[torch.dtype] = None,
          exclusive: bool = False) -> torch.Tensor:
    """A tensor of zeros in a new file, which contains nothing else. The tensor is the file's memory, on its GPU.

    dtype: None for torch's default. exclusive: True: an existing file is a FileExistsError; False: the new file
    replaces the existing file. OSError: as gpumem.create()."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    numbers = torch.Size((shape,) if isinstance(shape, int) else shape)
    size = math.prod(numbers) * torch.empty(0, dtype=dtype).element_size()
    memory = FileMemory.create(path, size, _native.CREATE_PENDING | (_native.CREATE_EXCL if exclusive else 0))
    if not _tensors.is_reachable(memory):
        raise RuntimeError(f"{memory.name} is in a GPU's memory, and torch {torch.__version__} has no CUDA here")
    if size:
        made = _tensors.tensor_at(_tensors.storage_over(memory), 0, size, dtype, numbers)
    else:
        made = torch.empty(numbers, dtype=dtype, device="cpu" if memory.on_cpu else f"cuda:{memory.dlpack_device()[1]}")
    memory.publish()
    return made
