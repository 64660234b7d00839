# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Requests of other processes to give memory back for a while."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

from . import _native

_POLL_SECONDS = 0.01
_function: Optional[Callable[[int, int], Any]] = None


def _pressed(wanted: int, device: int, _context: Any) -> None:
    function = _function
    if function is not None:
        function(wanted, device)


# Never freed: a thread in a safe point may be about to call the function while another sets the next.
_callback = _native.PressureFunction(_pressed)


def safe_point(wait: bool = True) -> bool:
    """Marks a point at which no kernel, copy or thread uses the memory of buffers. Here the library does what other
    processes have asked for (`gpumem park`, `gpumem unpark`), and calls the function of on_pressure().

    While buffers are parked on request: waits until they are mapped again, or returns True with wait=False; then the
    caller must not use the buffers until a later call returns False, or until unpark() of each."""
    library = _native.library()
    while library.gpumem_safe_point() > 0:
        if not wait:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def on_pressure(function: Optional[Callable[[int, int], Any]]) -> None:
    """Has function(bytes, device) called by safe_point() when GPU number device is full of files that processes hold,
    this process among them, and some program wants bytes more of it. The function may park buffers, or do nothing.
    None: no function. A child of fork has none. TypeError: not a function."""
    global _function
    if function is not None and not callable(function):
        raise TypeError(f"on_pressure() takes a function of two numbers or None, not {function!r}")
    _function = function
    given = _native.PressureFunction() if function is None else _callback
    _native.check(_native.library().gpumem_on_pressure(given, None))
