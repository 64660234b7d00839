# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""What was served how: lines on stderr at the end of each process that opened a file of a mount."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from ._settings import STATS, say

_MANNERS = ("view", "copy", "read")
_files: dict[str, dict[str, list[int]]] = {}  # tensors and bytes, by path and manner
_misaligned: dict[str, int] = {}  # tensors by path
_lock = threading.Lock()
_started = False


def _forget() -> None:
    """A forked child reports its own files alone. The lock may have been held by a thread of the parent."""
    global _lock
    _lock = threading.Lock()
    _files.clear()
    _misaligned.clear()


def opened(path: str) -> None:
    with _lock:
        _files.setdefault(path, {})


def _count(path: str, manner: str, size: int, is_aligned: bool) -> None:
    with _lock:
        if path in _files:
            counts = _files[path].setdefault(manner, [0, 0])
            counts[0] += 1
            counts[1] += size
            if not is_aligned:
                _misaligned[path] = _misaligned.get(path, 0) + 1


def _size(number: int) -> str:
    if number < 1 << 10:
        return str(number) if not number else f"{number} bytes"
    unit = min((number.bit_length() - 1) // 10, 4)
    return f"{number / (1 << 10 * unit):.1f} {('', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def _summary() -> str:
    totals = {manner: sum(file[manner][1] for file in _files.values() if manner in file) for manner in _MANNERS}
    words = [f"{len(_files)} file{'s' * (len(_files) != 1)}", f"{_size(totals['view'])} as views",
             f"{_size(totals['copy'])} copied"]
    if totals["read"]:
        words.append(f"{_size(totals['read'])} read")
    return ", ".join(words)


def _report() -> None:
    place = f"({os.path.basename(sys.executable or 'python3')}, pid {os.getpid()})"
    if not _files:
        if STATS:
            say(f"no framework loaded a file of a mount {place}")
        return
    if STATS:
        for path, manners in _files.items():
            for manner, (tensors, size) in manners.items() or [("no tensors taken", (0, 0))]:
                say(f"{path}: {manner}, {tensors} tensors, {_size(size)}")
    for path, tensors in _misaligned.items():
        say(f"{path}: {tensors} tensors begin at no multiple of 16 bytes, and kernels for such tensors may round otherwise: gpumem align {path}")
    say(f"{_summary()} {place}")


def start() -> None:
    """Must be called under the import lock of a module, or before threads exist."""
    global _started
    if not _started:
        _started = True
        atexit.register(_report)
        os.register_at_fork(after_in_child=_forget)


def watch() -> None:
    """Counts the tensors that gpumem.torch makes."""
    from gpumem.torch import _file
    _file.observer = _count
