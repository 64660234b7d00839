# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The copy of a file, or of a directory of files, from one rank to all others."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

from .. import _placeholders
from . import _files, _folders, _pieces, _sums
from ._agree import agree, give_up, named
from ._engine import Engine, open_engine
from ._files import Bytes, Entry, Source, Target
from ._folders import Folders, Place

Path = Union[str, "os.PathLike[str]"]


class Report(NamedTuple):
    """What a broadcast did. copies: files written, of all ranks. sent: of all pieces those that a rank lacked.
    seconds: until the last byte of the last file was checked, without starting: the seconds until ranks could send or
    compare the first piece. cuda: some pieces went from GPU to GPU."""

    files: int
    bytes: int
    copies: int
    sent: int
    pieces: int
    seconds: float
    engine: str
    cuda: bool
    starting: float


def own_path(path: Path, engine: Engine) -> str:
    """The path with {rank} and {local_rank} replaced by this rank's numbers. ValueError: other names in braces."""
    return _placeholders.fill(os.fsdecode(path), rank=engine.rank, local_rank=engine.local_rank)


def _writers(places: Sequence[Any], root: int) -> list[int]:
    """The first rank of each destination that is not the root's path."""
    seen, found = {places[root]}, []
    for rank, place in enumerate(places):
        if place not in seen:
            seen.add(place)
            found.append(rank)
    return found


class _Copy:
    """The state of a broadcast in one rank."""

    def __init__(self, engine: Engine, path: Path, dest: Optional[Path], root: int,
                 piece: Optional[int]) -> None:
        if piece is not None:
            _pieces.check_size(piece)
        if not 0 <= root < engine.size:
            raise ValueError(f"the root is rank {root}, and there are {engine.size} ranks")
        self.engine, self.root, self.piece = engine, root, piece
        self.is_root = engine.rank == root
        self.path = own_path(path, engine)
        self.dest = own_path(path if dest is None else dest, engine)
        self.files: list[Union[Source, Target]] = []
        self.folders: Optional[Folders] = None
        self.where = Place(-1, "")
        self.sent, self.pieces, self.cuda = 0, 0, False
        self.started: set[Any] = set()
        self.starting = 0.0

    def find(self) -> list[Entry]:
        """The root's files, and which ranks write them."""
        found, is_directory = agree(self.engine, self._scan if self.is_root else None)[self.root]
        _files.check(found)
        self.writers = _writers(agree(self.engine, lambda: self._place(is_directory)), self.root)
        self.is_writer = self.engine.rank in self.writers
        return [Entry(*entry) for entry in found]

    def _scan(self) -> tuple[list[Entry], bool]:
        return _files.scan(self.path), os.path.isdir(self.path)

    def _place(self, is_directory: bool) -> Any:
        if self.is_root:
            return _files.place(self.path, is_directory)
        if is_directory:
            where = Place(_folders.make(self.dest), "")
        else:
            where = _folders.find(self.dest)
        self.folders = Folders(where.folder, self.dest)
        if not is_directory and not where.name:
            where = where._replace(name=os.path.basename(self.path))
            self.dest = os.path.join(self.dest, where.name)
        elif not is_directory and self.dest.endswith("/"):
            raise OSError(errno.ENOTDIR, "not a directory", self.dest)
        self.where = where
        return _files.identity(where)

    def _open(self, entry: Entry) -> tuple[Optional[str], bool]:
        """Opens a file; the GPU whose memory it is, and whether it may have bytes already."""
        if self.is_root:
            self.files.append(Source(_files.target(self.path, entry), entry))
        elif self.is_writer:
            where = self.folders.place(entry.name) if self.folders and entry.name else self.where
            self.files.append(Target(_files.target(self.dest, entry), entry, where))
        return self._state(-1)

    def _state(self, number: int) -> tuple[Optional[str], bool]:
        if not self.files:
            return None, False
        file = self.files[number]
        device = file.bytes.device() if file.bytes is not None and self.engine.has_cuda else None
        return device, isinstance(file, Target) and file.kept

    def open(self, entries: Sequence[Entry]) -> None:
        """Each rank opens all files and allocates all memory, so that a rank without room ends the run at its start."""
        self.states = agree(self.engine, lambda: [self._open(entry) for entry in entries])

    def _is_cuda(self, number: int, ranks: Sequence[int]) -> bool:
        """Whether the ranks have the file on GPUs, each on another."""
        devices = [self.states[rank][number][0] for rank in ranks]
        return None not in devices and len(set(devices)) == len(devices)

    def _piece_bytes(self, number: int) -> int:
        if self.piece is not None:
            return self.piece
        return _pieces.PIECE_CUDA if self._is_cuda(number, [self.root, *self.writers]) else _pieces.PIECE

    def _compare(self, number: int, pieces: Sequence[Any]) -> tuple[list[int], list[int]]:
        """For files of which bytes are there: the pieces that must be sent, and the ranks that need them."""
        everything = list(range(len(pieces))), self.writers
        kept = [rank for rank in self.writers if self.states[rank][number][1]]
        if not kept:
            return everything
        file = self.files[number] if self.files else None
        has_bytes = self.is_root or self.engine.rank in kept
        if "sums" not in self.started:
            start, first = time.monotonic(), [piece._replace(end=piece.begin + 1) for piece in pieces[:1]]
            agree(self.engine, (lambda: self._sums(number, first)) if has_bytes else None)
            self._has_started("sums", start)
        sums = agree(self.engine, (lambda: self._sums(number, pieces)) if has_bytes else None)
        lacking = {rank: _pieces.missing(sums[self.root], sums[rank]) for rank in self.writers}
        states = agree(self.engine, lambda: self._compared(file, number, bool(lacking.get(self.engine.rank, ()))))
        for rank, state in enumerate(states):
            self.states[rank][number] = state
            if lacking.get(rank) and not state[1]:  # a new file instead of the old one
                lacking[rank] = _pieces.missing(sums[self.root], None)
        return sorted(set().union(*lacking.values())), [rank for rank in self.writers if lacking[rank]]

    def _sums(self, number: int, pieces: Sequence[Any]) -> list[int]:
        content = self._bytes(number)
        # The rank's GPU computes the checksums of its own memory.
        content.prepare(self.engine, self.engine.has_cuda and content.device() is not None, self._piece_bytes(number))
        return _pieces.sums(content, pieces)

    def _compared(self, file: Any, number: int, differs: bool) -> tuple[Optional[str], bool]:
        if isinstance(file, Target):
            file.compared(not differs)
        return self._state(number)

    def transfer(self, number: int, entry: Entry) -> None:
        pieces = _pieces.plan(entry.size, self._piece_bytes(number))
        wanted, ranks = self._compare(number, pieces)
        self.pieces += len(pieces)
        self.sent += len(wanted) if ranks else 0
        if not wanted or not ranks:
            return
        ranks = sorted([self.root, *ranks])
        takes_part = self.engine.rank in ranks
        group = self._connect(number, ranks)
        for begin in range(0, len(wanted), _pieces.WINDOW):
            some = [pieces[at] for at in wanted[begin:begin + _pieces.WINDOW]]
            self._send(self.files[number] if takes_part else None, group, some)
        if takes_part:
            self._bytes(number).rest()

    def _connect(self, number: int, ranks: Sequence[int]) -> Any:
        """The group of these ranks, ready to send. The first collective of NCCL makes the connections, and the first
        checksum loads kernels: a new group sends and sums a byte."""
        start, cuda = time.monotonic(), self._is_cuda(number, ranks)
        self.cuda = self.cuda or cuda
        takes_part = self.engine.rank in ranks
        group = self.engine.group(ranks, cuda)
        agree(self.engine, (lambda: self._prepare(number, cuda)) if takes_part else None)
        if (tuple(ranks), cuda) not in self.started:
            if cuda:
                agree(self.engine, (lambda: self._send_first(number, group)) if takes_part else None)
            self._has_started((tuple(ranks), cuda), start)
        return group

    def _send_first(self, number: int, group: Any) -> None:
        byte = self._bytes(number).room(0, 0, 1)
        self.engine.wait(self.engine.start(group, byte, self.root))
        _sums.of(byte)

    def _has_started(self, what: Any, since: float) -> None:
        self.started.add(what)
        self.starting += time.monotonic() - since

    def _bytes(self, number: int) -> Bytes:
        content = self.files[number].bytes
        assert content is not None
        return content

    def _prepare(self, number: int, cuda: bool) -> None:
        file = self.files[number]
        self._bytes(number).prepare(self.engine, cuda, self._piece_bytes(number))
        if isinstance(file, Target):
            file.begin()

    def _send(self, file: Any, group: Any, pieces: Sequence[Any]) -> None:
        window = None
        if file is not None:
            window = _pieces.Window(self.engine, group, self.root, file.bytes)
            window.send(pieces)
        sums = agree(self.engine, window.sums if window else None)
        wrong = file is not None and sums[self.root] != sums[self.engine.rank]
        failure = named(self.engine, self._changed(file, sums[self.root], sums[self.engine.rank])) if wrong else None
        if any(found not in (None, sums[self.root]) for found in sums):
            give_up(self.engine.gather(failure))

    @staticmethod
    def _changed(file: Any, wanted: list[int], found: list[int]) -> OSError:
        number = min(_pieces.missing(wanted, found))
        return OSError(errno.EBADMSG, f"bytes changed on their way (piece {number} of {len(wanted)}): start again, "
                       "which sends the pieces that differ", file.bytes.name)

    def finish(self) -> None:
        """When all bytes are everywhere, each rank gives its files their names."""
        agree(self.engine, self._finish if self.is_root else None)
        agree(self.engine, self._finish if not self.is_root else None)

    def _finish(self) -> None:
        for file in self.files:
            file.finish()

    def close(self) -> None:
        for file in self.files:
            file.close()
        if self.folders:
            self.folders.close()


def _run(engine: Engine, path: Path, dest: Optional[Path], root: int, piece: Optional[int]) -> Report:
    copy = _Copy(engine, path, dest, root, piece)
    try:
        entries = copy.find()
        copy.open(entries)
        start = time.monotonic()
        for number, entry in enumerate(entries):
            copy.transfer(number, entry)
        seconds = time.monotonic() - start - copy.starting
        copy.finish()
    finally:
        copy.close()
    return Report(len(entries), sum(entry.size for entry in entries), len(entries) * len(copy.writers), copy.sent,
                  copy.pieces, seconds, engine.name, copy.cuda, copy.starting)


def broadcast(path: Path, dest: Optional[Path] = None, *, root: int = 0, piece: Optional[int] = None,
              engine: Union[str, Engine] = "auto", timeout: Optional[float] = None) -> Report:
    """Copies a file, or the files below a directory, from one rank to all others. Every rank calls this function.

    path: at the root. dest: at the other ranks; None: the same path. {rank} and {local_rank} in a path stand for the
    rank's numbers. One rank writes each destination: of ranks with the same destination on one machine, for example in
    containers that share a mount, the first. piece: bytes that are sent at once; None: 64 MiB, and 256 MiB if all files
    are on GPUs of their own. engine: "torch", "mpi", or "auto" for
    the engine whose launcher started the program. timeout: in seconds, how long a rank waits for another (torch).

    A file gets its name when all files have arrived everywhere. Until then the bytes are in .NAME.gpumem-part there;
    after a failure the next run compares these bytes with the root's by checksums, and sends the pieces that differ.

    BroadcastError, in all ranks: a rank failed; no file has changed, unless the naming failed. RuntimeError: a rank was
    lost."""
    if isinstance(engine, Engine):
        return _run(engine, path, dest, root, piece)
    with open_engine(engine, timeout) as opened:
        return _run(opened, path, dest, root, piece)
