# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Files in pieces: which pieces are sent, and the sending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from . import _sums
from ._engine import Engine
from ._files import Bytes

PIECE = 64 << 20
# Between GPUs: Python needs 0.2 ms for a piece, in which NVLink carries 64 MiB.
PIECE_CUDA = 256 << 20
PIECE_LEAST = 4096
# After so many pieces the ranks compare checksums and learn of failures.
WINDOW = 64


class Piece(NamedTuple):
    begin: int
    end: int


def check_size(piece: int) -> None:
    if not PIECE_LEAST <= piece <= _sums.PIECE_MAX or piece % PIECE_LEAST:
        raise ValueError(f"a piece has a multiple of {PIECE_LEAST} bytes up to {_sums.PIECE_MAX}, not {piece}")


def plan(size: int, piece: int) -> list[Piece]:
    return [Piece(begin, min(begin + piece, size)) for begin in range(0, size, piece)]


def sums(content: Bytes, pieces: Sequence[Piece]) -> list[int]:
    """The checksums of the bytes that are there. OSError."""
    return [_sums.of(content.summed(number, *piece, load=True)) for number, piece in enumerate(pieces)]


def missing(wanted: Sequence[int], found: Optional[Sequence[int]]) -> set[int]:
    """The numbers of the pieces that differ. found: None for a rank that has no bytes yet."""
    if found is None:
        return set(range(len(wanted)))
    return {number for number, pair in enumerate(zip(wanted, found)) if pair[0] != pair[1]}


class Window:
    """Pieces that are sent without messages between the ranks. While a piece is on its way, the root reads the next
    piece, and the other ranks write the previous piece. A rank that fails takes part to the end: no rank waits."""

    def __init__(self, engine: Engine, group: Any, root: int, content: Bytes) -> None:
        self._engine, self._group, self._root, self._content = engine, group, root, content
        self._failure: Optional[Exception] = None
        self._begun: list[Any] = []

    def _prepare(self, number: int, piece: Piece) -> Any:
        """The buffer of a piece, at the root with its bytes."""
        if self._engine.rank == self._root and self._failure is None:
            try:
                buffer = self._content.load(number, *piece)
                self._begun.append(_sums.begin(self._content.summed(number, *piece)))
                return buffer
            except (OSError, RuntimeError) as error:
                self._failure = error
        return self._content.room(number, *piece)

    def _received(self, number: int, piece: Piece) -> None:
        if self._engine.rank == self._root or self._failure is not None:
            return
        try:
            self._content.store(number, *piece)
            self._begun.append(_sums.begin(self._content.summed(number, *piece)))
        except (OSError, RuntimeError) as error:
            self._failure = error

    def send(self, pieces: Sequence[Piece]) -> None:
        ready = self._prepare(0, pieces[0])
        for number, piece in enumerate(pieces):
            work = self._engine.start(self._group, ready, self._root)
            if number:
                self._received(number - 1, pieces[number - 1])
            if number + 1 < len(pieces):
                ready = self._prepare(number + 1, pieces[number + 1])
            self._engine.wait(work)
        self._received(len(pieces) - 1, pieces[-1])

    def sums(self) -> list[int]:
        """The checksums of the pieces. Raises the failure of this rank."""
        if self._failure is not None:
            raise self._failure
        return [_sums.end(begun) for begun in self._begun]
