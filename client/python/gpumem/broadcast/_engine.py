# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The interface of the engines that carry the bytes, and the choice of an engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Optional

ENGINES = ("auto", "torch", "mpi")


class Lost(RuntimeError):
    """The engine failed: as a rule another rank has ended."""


class Engine:
    """A buffer is what wrap() gives for a memoryview of bytes, or with has_cuda a tensor of bytes on a GPU. All ranks
    call gather() and group() in the same order; only the ranks of a group call start(). Failures are Lost."""

    name: str
    rank: int
    size: int
    local_rank: int
    has_cuda = False

    def gather(self, item: Any) -> list[Any]:
        """A small object of each rank, by rank."""
        raise NotImplementedError

    def wrap(self, memory: memoryview) -> Any:
        raise NotImplementedError

    def group(self, ranks: Sequence[int], cuda: bool) -> Any:
        """A group for start(), made once. cuda: for tensors on GPUs, of which each rank has another."""
        raise NotImplementedError

    def start(self, group: Any, buffer: Any, root: int) -> Any:
        """Begins to copy the root's buffer into the buffers of all other ranks of the group; for wait()."""
        raise NotImplementedError

    def wait(self, work: Any) -> None:
        raise NotImplementedError

    def send(self, buffer: Any, rank: int) -> None:
        raise NotImplementedError

    def receive(self, buffer: Any, rank: int) -> None:
        raise NotImplementedError

    def abort(self, status: int) -> None:
        """After Lost: ends the other ranks, if their launcher does not."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _detect() -> str:
    """By the variables that the launchers set."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ and "MASTER_ADDR" in os.environ:
        return "torch"
    if any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK")):
        return "mpi"
    raise ValueError("no ranks: start this program under torchrun or mpirun, or srun with MPI")


def open_engine(name: str, timeout: Optional[float]) -> Engine:
    """timeout: in seconds, for torch: how long a rank waits for another. ImportError: the engine's package is missing.
    Lost: the ranks do not find one another."""
    if name not in ENGINES:
        raise ValueError(f"engine is 'auto', 'torch' or 'mpi', not {name!r}")
    if (name if name != "auto" else _detect()) == "mpi":
        from ._engine_mpi import MpiEngine
        return MpiEngine()
    from ._engine_torch import TorchEngine
    return TorchEngine(timeout)
