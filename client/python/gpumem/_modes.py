# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The modes in which a file is opened, and the warning about an unexpected copy."""

from __future__ import annotations

import os
import warnings

from ._memory import FileMemory

# Copies up to this size cause no warning.
COPY_MAX = 64 << 20

_FLAGS = {"r": os.O_RDONLY, "r+": os.O_RDWR, "copy": os.O_RDONLY}
_warned = False


class CopyWarning(UserWarning):
    """Opening a file with mode "r" made a private copy of more than 64 MiB."""


def flags_of(mode: str, modes: str = "'r', 'r+' or 'copy'") -> int:
    """modes: those that the caller has, for the message."""
    try:
        return _FLAGS[mode]
    except (KeyError, TypeError):
        raise ValueError(f"mode is {modes}, not {mode!r}") from None


def memory_check(memory: FileMemory, mode: str) -> FileMemory:
    """Checks that the mode describes the memory, and returns the memory. Must be called directly by a public
    function, because the warning names the caller of the caller."""
    global _warned
    if mode == "copy" and not memory.private:
        raise ValueError(f"readers of {memory.name} get the memory of the file itself, not a copy: open the file with "
                         "mode 'r', and use copy() for a copy")
    if mode == "r" and memory.private and memory.size > COPY_MAX and not _warned:
        warnings.warn(
            f"mode 'r' made a private copy of {memory.name}, which takes {memory.size} more bytes of the GPU's "
            "memory: open the file with mode 'r+' to use the file's own memory, or ask its owner to set "
            "user.gpumem.share=trusted for all readers; mode 'copy' makes a copy without this warning", CopyWarning, stacklevel=3)
        _warned = True
    return memory
