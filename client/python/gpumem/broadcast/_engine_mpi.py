# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""MPI by mpi4py, for memory of the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from mpi4py import MPI

from ._engine import Engine, Lost


@contextlib.contextmanager
def _losses() -> Iterator[None]:
    try:
        yield
    except MPI.Exception as error:
        raise Lost(f"MPI failed, perhaps because another rank ended: {error}") from error


class MpiEngine(Engine):
    name = "mpi"

    def __init__(self) -> None:
        with _losses():
            self._all = MPI.COMM_WORLD.Dup()
            self.rank, self.size = self._all.rank, self._all.size
            node = self._all.Split_type(MPI.COMM_TYPE_SHARED)
            self.local_rank = node.rank
            node.Free()
        self._groups: dict[tuple[int, ...], tuple[Any, dict[int, int]]] = {}

    def gather(self, item: Any) -> list[Any]:
        with _losses():
            return list(self._all.allgather(item))

    def wrap(self, memory: memoryview) -> Any:
        return memory

    def group(self, ranks: Sequence[int], cuda: bool) -> Any:
        key = tuple(ranks)
        if key not in self._groups:
            with _losses():
                made = self._all.Split(0 if self.rank in key else MPI.UNDEFINED, self.rank)
            self._groups[key] = (made, {rank: i for i, rank in enumerate(sorted(key))})
        return self._groups[key]

    def start(self, group: Any, buffer: Any, root: int) -> Any:
        made, places = group
        with _losses():
            return made.Ibcast([buffer, MPI.BYTE], places[root])

    def wait(self, work: Any) -> None:
        with _losses():
            work.Wait()

    def send(self, buffer: Any, rank: int) -> None:
        with _losses():
            self._all.Send([buffer, MPI.BYTE], rank)

    def receive(self, buffer: Any, rank: int) -> None:
        with _losses():
            self._all.Recv([buffer, MPI.BYTE], rank)

    def abort(self, status: int) -> None:
        MPI.COMM_WORLD.Abort(status)

    def close(self) -> None:
        for made, _ in self._groups.values():
            if made != MPI.COMM_NULL:
                made.Free()
        self._all.Free()
