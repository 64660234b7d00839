# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Copies of a version in sets on other GPUs. The daemon copies, from GPU to GPU where they are peers, so that this process
needs none of these GPUs."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ._hidden import Hidden


def _file_copy(source: str, target: str) -> None:
    """Over memory of that size that is there, which is not cleared before."""
    with open(source, "rb", buffering=0) as from_file, open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW),
                                                            "wb", buffering=0) as to_file:
        left = os.fstat(from_file.fileno()).st_size
        if os.fstat(to_file.fileno()).st_size != left:
            os.ftruncate(to_file.fileno(), 0)
            if left:
                os.posix_fallocate(to_file.fileno(), 0, left)
        while left:
            n = os.copy_file_range(from_file.fileno(), to_file.fileno(), left)
            if not n:
                raise OSError(errno.EIO, "the version became shorter while it was copied", source)
            left -= n
    shutil.copymode(source, target)


def _directory_copy(source: str, target: str) -> None:
    for entry in os.scandir(source):
        path = os.path.join(target, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), path)
        elif entry.is_dir():
            os.mkdir(path)
            _directory_copy(entry.path, path)
        else:
            _file_copy(entry.path, path)
    shutil.copymode(source, target)


def copy_all(source: str, targets: Sequence[Hidden]) -> None:
    """At the same time: each GPU has links of its own."""
    if not targets:
        return
    with ThreadPoolExecutor(len(targets)) as pool:
        for copied in [pool.submit(_directory_copy, source, target.path) for target in targets]:
            copied.result()
