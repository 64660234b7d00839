# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""torch.distributed: gloo for messages and for memory of the CPU, NCCL between GPUs."""

from __future__ import annotations

import contextlib
import datetime
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist

from ._engine import Engine, Lost


@contextlib.contextmanager
def _losses() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise Lost(f"torch.distributed failed, perhaps because another rank ended: {lines[0]}") from error


class TorchEngine(Engine):
    name = "torch"

    def __init__(self, timeout: Optional[float]) -> None:
        self._options: dict[str, Any] = {} if timeout is None else {"timeout": datetime.timedelta(seconds=timeout)}
        self._groups: dict[tuple[tuple[int, ...], bool], Any] = {}
        self._made = not dist.is_initialized()
        with _losses():
            if self._made:
                dist.init_process_group("gloo", **self._options)
            self._messages = dist.new_group(backend="gloo", **self._options)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        self.has_cuda = torch.cuda.is_available() and dist.is_nccl_available()

    def gather(self, item: Any) -> list[Any]:
        answers: list[Any] = [None] * self.size
        with _losses():
            dist.all_gather_object(answers, item, group=self._messages)
        return answers

    def wrap(self, memory: memoryview) -> Any:
        with warnings.catch_warnings():  # about the root's memory, if that is read-only: a broadcast only reads it
            warnings.simplefilter("ignore")
            return torch.frombuffer(memory, dtype=torch.uint8) if memory.nbytes else torch.empty(0, dtype=torch.uint8)

    def group(self, ranks: Sequence[int], cuda: bool) -> Any:
        key = (tuple(ranks), cuda)
        if key not in self._groups:
            with _losses():
                self._groups[key] = dist.new_group(list(ranks), backend="nccl" if cuda else "gloo", **self._options)
        return self._groups[key]

    def start(self, group: Any, buffer: Any, root: int) -> Any:
        device: Any = torch.cuda.device(buffer.device) if buffer.is_cuda else contextlib.nullcontext()
        with _losses(), device:
            return dist.broadcast(buffer, root, group=group, async_op=True)

    def wait(self, work: Any) -> None:
        with _losses():
            work.wait()

    def send(self, buffer: Any, rank: int) -> None:
        with _losses():
            dist.send(buffer, rank, group=self._messages)

    def receive(self, buffer: Any, rank: int) -> None:
        with _losses():
            dist.recv(buffer, rank, group=self._messages)

    def close(self) -> None:
        if self._made:
            dist.destroy_process_group()
