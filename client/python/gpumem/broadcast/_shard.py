# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Slices of a safetensors set: each rank gets a file with its slice of every tensor. Only these bytes travel."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from . import _files, _pieces, _sums
from ._agree import agree
from ._copy import Path, own_path
from ._engine import Engine, open_engine


class ShardReport(NamedTuple):
    """What shard() did. sliced, whole: numbers of tensors; whole ones are the same in every slice. bytes: sent."""

    ranks: int
    dim: int
    sliced: int
    whole: int
    bytes: int
    seconds: float


class Plan(NamedTuple):
    """A tensor of the set. dtype: of torch, by its name. shape: of a rank's slice."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_sliced: bool


def slice_plan(name: str, dtype: str, shape: Sequence[int], dim: int, ranks: int) -> Plan:
    """A tensor is sliced if it has the dimension, and the ranks divide that evenly; otherwise it is whole."""
    if dim >= len(shape) or shape[dim] % ranks:
        return Plan(name, dtype, tuple(shape), False)
    return Plan(name, dtype, (*shape[:dim], shape[dim] // ranks, *shape[dim + 1:]), True)


class _Set:
    """The tensors that the root has."""

    def __init__(self, path: str) -> None:
        from ..torch import _load
        if os.path.isdir(path):
            self._places, self._files = _load.open_model(path, "copy")
        else:
            file = _load.File(path, "copy")
            self._places, self._files = dict.fromkeys(file.header.tensors, path), {path: file}

    def _file(self, name: str) -> Any:
        return self._files[self._places[name]]

    def plans(self, dim: int, ranks: int) -> list[Plan]:
        found = []
        for name in sorted(self._places):
            dtype, shape = self._file(name).torch_type(name)
            found.append(slice_plan(name, str(dtype).rpartition(".")[2], shape, dim, ranks))
        return found

    def metadata(self) -> dict[str, str]:
        return dict(next(iter(self._files.values())).header.metadata) if self._files else {}

    def part(self, plan: Plan, dim: int, rank: int) -> Any:
        """A rank's part of a tensor, contiguous in system memory."""
        import torch
        index: Any = ...
        if plan.is_sliced:
            rows = plan.shape[dim]
            index = (*(slice(None),) * dim, slice(rank * rows, (rank + 1) * rows))
        return self._file(plan.name).part(plan.name, index, torch.device("cpu")).contiguous()


def _bytes_of(engine: Engine, tensor: Any) -> Any:
    """The bytes of a contiguous tensor as the engine's buffer."""
    size = tensor.nelement() * tensor.element_size()
    if not size:
        return engine.wrap(memoryview(b""))
    return engine.wrap(memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B"))


class _Shard:
    """The state in one rank."""

    def __init__(self, engine: Engine, dim: int, root: int, piece: int) -> None:
        _pieces.check_size(piece)
        if not 0 <= root < engine.size:
            raise ValueError(f"the root is rank {root}, and there are {engine.size} ranks")
        if dim < 0:
            raise ValueError(f"dimension {dim} is negative")
        self.engine, self.dim, self.root, self.piece = engine, dim, root, piece
        self.is_root = engine.rank == root
        self.tensors: dict[str, Any] = {}
        self.failure: Optional[Exception] = None
        self.sent = 0

    def _pieces_of(self, tensor: Any) -> Iterator[Any]:
        buffer = _bytes_of(self.engine, tensor)
        for piece in _pieces.plan(len(buffer), self.piece):
            yield buffer[piece.begin:piece.end]

    def _empty(self, plan: Plan) -> Any:
        import torch
        return torch.zeros(plan.shape, dtype=getattr(torch, plan.dtype))

    def _part(self, plan: Plan, rank: int) -> Any:
        """After a failure zeros, so that no rank waits for the root."""
        if self.failure is None:
            try:
                return self._set.part(plan, self.dim, rank)
            except (OSError, ValueError, RuntimeError) as error:
                self.failure = error
        return self._empty(plan)

    def serve(self, plans: Sequence[Plan]) -> dict[int, list[int]]:
        """Sends each rank its parts; the checksums of the pieces, by rank."""
        sums: dict[int, list[int]] = {rank: [] for rank in range(self.engine.size)}
        for plan in plans:
            part = None
            for rank in range(self.engine.size):
                if part is None or plan.is_sliced:
                    part = self._part(plan, rank)
                if rank == self.root:
                    self.tensors[plan.name] = part
                    continue
                for buffer in self._pieces_of(part):
                    sums[rank].append(_sums.of(buffer))
                    self.engine.send(buffer, rank)
                    self.sent += len(buffer)
        return sums

    def receive(self, plans: Sequence[Plan]) -> list[int]:
        sums = []
        for plan in plans:
            tensor = self.tensors[plan.name]
            for buffer in self._pieces_of(tensor):
                self.engine.receive(buffer, self.root)
                sums.append(_sums.of(buffer))
        return sums

    def open(self, path: str) -> tuple[list[Plan], dict[str, str]]:
        """The tensors of the root's set, and its metadata."""
        self._set = _Set(path)
        return self._set.plans(self.dim, self.engine.size), self._set.metadata()

    def make_room(self, plans: Sequence[Plan]) -> None:
        self.tensors = {plan.name: self._empty(plan) for plan in plans}

    def save(self, dest: str, metadata: Mapping[str, str]) -> int:
        """Gives the number of bytes that this rank has sent."""
        from ..torch import save_file
        own = {"gpumem_shard": f"{self.engine.rank}/{self.engine.size}", "gpumem_shard_dim": str(self.dim)}
        save_file(self.tensors, dest, {**metadata, **own})
        return self.sent

    def result(self, sums: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        return sums


def _check(dest: str, wanted: list[int], found: list[int]) -> None:
    if wanted != found:
        raise OSError(errno.EBADMSG, "bytes changed on their way: start again", dest)


def _check_places(dest: str, places: Sequence[Any]) -> None:
    for rank, place in enumerate(places):
        if place in places[:rank]:
            raise ValueError(f"{dest}: ranks {places.index(place)} and {rank} have the same destination: name it with "
                             "{rank} or {local_rank}")


def _run(engine: Engine, path: Path, dest: Path, dim: int, root: int, piece: int) -> ShardReport:
    state, source, target = _Shard(engine, dim, root, piece), own_path(path, engine), own_path(dest, engine)

    plans, metadata = agree(engine, (lambda: state.open(source)) if state.is_root else None)[root]
    places = agree(engine, lambda: _files.place(target, False))
    agree(engine, lambda: _check_places(target, places))
    agree(engine, None if state.is_root else lambda: state.make_room(plans))
    start = time.monotonic()
    found: Any = state.serve(plans) if state.is_root else state.receive(plans)
    sums = agree(engine, lambda: state.result(found))
    seconds = time.monotonic() - start
    agree(engine, None if state.is_root else lambda: _check(target, sums[root][engine.rank], sums[engine.rank]))
    sent = agree(engine, lambda: state.save(target, metadata))
    sliced = sum(plan.is_sliced for plan in plans)
    return ShardReport(engine.size, dim, sliced, len(plans) - sliced, sent[root], seconds)


def shard(path: Path, dest: Path, *, dim: int = 0, root: int = 0, piece: int = _pieces.PIECE,
          engine: Union[str, Engine] = "auto", timeout: Optional[float] = None) -> ShardReport:
    """Gives each rank, the root too, the file dest with its slice of each tensor. Every rank calls this function.

    path: at the root: a safetensors file, or a directory with model.safetensors or its index. dest: another file for
    each rank, with {rank} or {local_rank} if necessary. Rank R of N gets the Rth of N equal parts along the dimension.
    A tensor that lacks the dimension, or whose size there is no multiple of N, is whole in every file. The metadata of
    each file have "gpumem_shard": "R/N" and "gpumem_shard_dim". gpumem.torch.save_file() writes the file, whole or not
    at all, from system memory of the size of the slice. Needs torch, with MPI too. The other arguments are those of
    broadcast()."""
    if isinstance(engine, Engine):
        return _run(engine, path, dest, dim, root, piece)
    with open_engine(engine, timeout) as opened:
        return _run(opened, path, dest, dim, root, piece)
