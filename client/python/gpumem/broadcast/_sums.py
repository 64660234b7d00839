# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The checksum of a piece, which torch computes on a CPU and on a GPU, numpy, and Python alone.

The bytes, padded by zeros, are rows of COLUMNS signed 32-bit words in little endian. The checksum is the sum of all
words, each multiplied by a weight of its column and a weight of its row, plus a multiple of the size, modulo 2^64: a
multilinear hash. It finds faults of a transfer, not forgeries."""

from __future__ import annotations

import concurrent.futures
import functools
import os
from typing import Any

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

COLUMNS = 1 << 16
ROW = 4 * COLUMNS
PIECE_MAX = 1 << 30
# What a GPU multiplies at once; the products take twice as much memory meanwhile. Python needs 50 us for each step.
GPU_STEP = 256 * ROW
# One thread computes 3 GB/s, less than gloo and MPI send inside a machine.
THREADS = min(4, os.cpu_count() or 1)
_MASK = (1 << 64) - 1


@functools.lru_cache(maxsize=None)
def weights() -> list[int]:
    """Odd signed 64-bit numbers, from a linear congruential generator."""
    made, state = [], 1
    for _ in range(COLUMNS):
        state = (state * 6364136223846793005 + 1442695040888963407) & _MASK
        made.append(signed((state ^ state >> 33) | 1))
    return made


def signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _total(rows: int, size: int) -> int:
    return (rows + size * 0x9E3779B97F4A7C15) & _MASK


@functools.lru_cache(maxsize=None)
def _torch_weights(device: Any) -> Any:
    import torch
    return torch.tensor(weights(), dtype=torch.int64, device=device)


@functools.lru_cache(maxsize=None)
def _pool() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(THREADS)


def _cpu_rows(words: Any, factors: Any) -> Any:
    """Row by row, because a row fits into the CPU's cache."""
    import torch
    wide = torch.empty(COLUMNS, dtype=torch.int64)
    return torch.stack([torch.dot(wide.copy_(row), factors) for row in words])


def _torch_rows(words: Any, factors: Any) -> Any:
    """The sum of each row."""
    import torch
    if words.device.type != "cpu":
        return (words * factors).sum(1)
    return torch.cat(list(_pool().map(lambda part: _cpu_rows(part, factors), torch.chunk(words, THREADS))))


def _of_tensor(piece: Any) -> Any:
    """A tensor with the sum of the rows, which a GPU may not have computed yet."""
    import torch
    factors, whole = _torch_weights(piece.device), len(piece) // ROW * ROW
    total = torch.zeros((), dtype=torch.int64, device=piece.device)
    step = GPU_STEP if piece.is_cuda else whole or ROW
    for begin in range(0, whole, step):
        words = piece[begin:min(begin + step, whole)].view(torch.int32).view(-1, COLUMNS)
        first = begin // ROW
        total = total + (_torch_rows(words, factors) * factors[first:first + len(words)]).sum()
    if whole < len(piece):
        rest = torch.zeros(ROW, dtype=torch.uint8, device=piece.device)
        rest[:len(piece) - whole] = piece[whole:]
        total = total + (_torch_rows(rest.view(torch.int32).view(1, COLUMNS), factors) * factors[whole // ROW]).sum()
    return total


def _row_plain(row: Any) -> int:
    return sum(int.from_bytes(row[4 * i:4 * i + 4], "little", signed=True) * weight
               for i, weight in enumerate(weights()[:len(row) // 4]))


@functools.lru_cache(maxsize=None)
def _numpy_weights() -> Any:
    return numpy.array(weights(), dtype=numpy.int64)


def _row_numpy(row: Any) -> int:
    words = numpy.frombuffer(row, dtype="<i4")
    return int((words * _numpy_weights()[:len(words)]).sum())


def _of_bytes(piece: Any) -> int:
    total, function = 0, _row_plain if numpy is None else _row_numpy
    for i, begin in enumerate(range(0, len(piece), ROW)):
        row = piece[begin:begin + ROW]
        if len(row) % 4:
            row = bytes(row) + bytes(-len(row) % 4)
        total += function(row) * weights()[i]
    return total & _MASK


def begin(piece: Any) -> tuple[Any, int]:
    """Starts the checksum of a tensor or a memoryview of bytes, at most PIECE_MAX: an argument for end()."""
    return (_of_bytes if isinstance(piece, (memoryview, bytes, bytearray)) else _of_tensor)(piece), len(piece)


def end(begun: tuple[Any, int]) -> int:
    """Waits for the GPU, if there is one."""
    rows, size = begun
    return _total(int(rows), size)


def of(piece: Any) -> int:
    return end(begin(piece))
