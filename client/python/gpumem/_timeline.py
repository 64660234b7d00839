# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Order between processes, on GPUs and CPUs."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import time
from typing import Any, Optional, Union

from . import _native
from ._memory import _finalize

_SLICE_SECONDS = 0.1  # between two looks at signals, such as Ctrl-C
Path = Union[str, bytes, os.PathLike[Any]]


def _stream(stream: Any) -> Optional[int]:
    """The CUstream of a stream of torch (cuda_stream), of CuPy (ptr), or a number. None: the default stream."""
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    return None if stream is None else int(stream)


def _close(handle: int) -> None:
    _native.library().gpumem_timeline_close(handle)


class Timeline:
    """A file of timelines, which are 64-bit values that only grow: see gpumem_timeline_create(3). The process that
    creates the file signals, and others wait. OSError with errno EOWNERDEAD: that process has ended."""

    ENDED = 2**63 - 1  # the value once the creator has ended

    def __init__(self, handle: Optional[int], name: str) -> None:
        if not handle:
            raise _native.failure(name)
        self._handle, self._name = handle, name
        self._finalizer = _finalize(self, _close, handle)

    @classmethod
    def create(cls, path: Path, count: int = 1, exclusive: bool = False) -> Timeline:
        """A new file of count timelines of value 0, in host/ or on a GPU, which is removed with this process. exclusive:
        as for gpumem.create()."""
        name = _native.path_name(path)
        flags = _native.CREATE_EXCL if exclusive else 0
        return cls(_native.library().gpumem_timeline_create(os.fsencode(name), count, 0o666, flags), name)

    @classmethod
    def open(cls, path: Path) -> Timeline:
        """The file of another process."""
        name = _native.path_name(path)
        return cls(_native.library().gpumem_timeline_open(os.fsencode(name)), name)

    def _opened(self) -> int:
        if not self._finalizer.alive:
            raise ValueError("the timelines are closed")
        return self._handle

    def signal(self, value: int, number: int = 0, stream: Any = None) -> None:
        """Makes a timeline have a value after the work that the stream has so far: a stream of torch or CuPy, or a
        CUstream as a number; None: the context's default stream, which is torch's unless another one is current."""
        _native.check(_native.library().gpumem_timeline_signal(self._opened(), number, _stream(stream), value), self._name)

    def signal_host(self, value: int, number: int = 0) -> None:
        """Makes a timeline have a value now."""
        _native.check(_native.library().gpumem_timeline_signal_host(self._opened(), number, value), self._name)

    def wait(self, value: int, number: int = 0, stream: Any = None) -> None:
        """Holds the stream's later work up until the timeline has at least the value, or its creator has ended, of which
        check() tells. This call does not wait."""
        _native.check(_native.library().gpumem_timeline_wait(self._opened(), number, _stream(stream), value), self._name)

    def wait_host(self, value: int, number: int = 0, timeout: Optional[float] = None) -> None:
        """Waits for the value, at most so many seconds. TimeoutError."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            slice_ns = int(max(0.0, min(left, _SLICE_SECONDS)) * 1e9)
            if not _native.library().gpumem_timeline_wait_host(self._opened(), number, value, slice_ns):
                return
            failure = _native.failure(self._name)
            if failure.errno != errno.ETIMEDOUT or left <= _SLICE_SECONDS:
                raise failure

    def value(self, number: int = 0) -> int:
        value = ctypes.c_uint64()
        _native.check(_native.library().gpumem_timeline_value(self._opened(), number, ctypes.byref(value)), self._name)
        return value.value

    def check(self) -> None:
        """OSError with errno EOWNERDEAD: the creator has ended, and waits since then meant nothing."""
        _native.check(_native.library().gpumem_timeline_check(self._opened()), self._name)

    def close(self) -> None:
        """No GPU work may still use the timelines. Closing twice is fine."""
        self._finalizer()

    def __enter__(self) -> Timeline:
        self._opened()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
