# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The modes in which a file is opened, and what is said of a copy that nobody asked for."""

from __future__ import annotations

import os
import warnings

from ._memory import FileMemory

# A copy up to this size is worth no word.
COPY_MAX = 64 << 20

_FLAGS = {"r": os.O_RDONLY, "r+": os.O_RDWR, "copy": os.O_RDONLY}
_warned = False


class CopyWarning(UserWarning):
    """Opening a file with mode "r" made a private copy of more than 64 MiB."""


def flags_of(mode: str) -> int:
    try:
        return _FLAGS[mode]
    except (KeyError, TypeError):
        raise ValueError(f"mode is 'r', 'r+' or 'copy', not {mode!r}") from None


def judge(memory: FileMemory, mode: str) -> FileMemory:
    """The memory, if it is what the mode stands for. To be called by a function that users call: the
    warning names the line that called that."""
    global _warned
    if mode == "copy" and not memory.private:
        raise ValueError(f"{memory.name} gives its readers its own memory, not a copy: open it with mode 'r', and "
                         "copy() what is to stay as it is")
    if mode == "r" and memory.private and memory.size > COPY_MAX and not _warned:
        warnings.warn(
            f"mode 'r' made a private copy of {memory.name}, which takes {memory.size} more bytes of the GPU's memory: "
            "open it with mode 'r+' for the memory itself, or have its owner set user.gpumem.share=trusted for its "
            "readers; mode 'copy' asks for a copy without this warning", CopyWarning, stacklevel=3)
        _warned = True
    return memory
