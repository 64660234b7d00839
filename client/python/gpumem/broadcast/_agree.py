# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Steps that all ranks take together, so that the failure of one rank ends all ranks with the same line."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any, Callable, Optional

from ._engine import Engine


class BroadcastError(RuntimeError):
    """A rank failed: the message names the rank, its host, and the path. All ranks raise the same error."""


def describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, (OSError, ValueError, RuntimeError)) and str(error):
        return str(error)
    return f"{type(error).__name__} {error}".rstrip()


def named(engine: Engine, error: BaseException) -> str:
    return f"rank {engine.rank} ({socket.gethostname()}): {describe(error)}"


def give_up(failures: Sequence[Optional[str]]) -> None:
    """BroadcastError if a rank has a failure."""
    texts = [text for text in failures if text]
    if texts:
        more = f" (and {len(texts) - 1} other ranks failed)" if len(texts) > 1 else ""
        raise BroadcastError(texts[0] + more)


def agree(engine: Engine, function: Optional[Callable[[], Any]] = None) -> list[Any]:
    """Calls the function, and gives the results of all ranks; a rank without a function has None. BroadcastError: the
    function of a rank failed."""
    failure, result = None, None
    try:
        result = function() if function else None
    except Exception as error:
        failure = named(engine, error)
    answers = engine.gather((failure, result))
    give_up([answer[0] for answer in answers])
    return [answer[1] for answer in answers]
