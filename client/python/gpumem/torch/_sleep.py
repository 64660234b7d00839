# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""All of a process's memory in files, given back for a while: an engine that sleeps."""

from __future__ import annotations

import errno
from typing import Optional

import torch

from .._memory import FileMemory
from . import _pool


def sleep() -> list[str]:
    """Waits for the GPUs, and parks every pool of this process and every file that buffers and views use, so that the
    memory may leave the GPU. No kernel and no thread may use the memory until wake().

    Returns the names of the files whose memory stays on a GPU: private copies of files that are not trusted. Files of
    host/, copies (mode "copy"), and memory of torch outside of pools stay as they are.

    OSError: a file was not parked; wake() brings the others back."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    files = FileMemory.all()
    for file in files:
        file.wait()
    _pool.park()
    for file in files:
        if file.index is not None and not file.private:
            file.park()
    return [file.name for file in files if file.private]


def wake() -> None:
    """Maps all of the memory again, at the same addresses: tensors, and CUDA graphs that were captured before, work as
    before sleep().

    OSError with the name of the file: with ESTALE, a file was changed meanwhile, shortened, emptied or removed; with
    ENOSPC, a GPU has no room. The other files are awake all the same, and so is a file that was changed; any that are
    not are tried again by the next call."""
    failed: Optional[OSError] = None
    try:
        changed = _pool.unpark()
        if changed:
            failed = OSError(errno.ESTALE, changed)
    except OSError as error:
        failed = error
    for file in FileMemory.all():
        try:
            if file.unpark():
                failed = failed or OSError(errno.ESTALE, "the file was changed during sleep()", file.name)
        except OSError as error:
            failed = failed or error
    if failed:
        raise failed
