# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Copies of a version in sets on other GPUs. The daemon copies, from GPU to GPU where they are peers, so that this process
needs none of these GPUs."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ._hidden import Hidden

_PRIVATE, _PRIVATE_DIRECTORY = 0o600, 0o700  # modes


def _file_copy(source: str, target: str) -> None:
    """Over memory of that size that is there, which is not cleared before."""
    with open(os.open(source, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0) as from_file, \
            open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, _PRIVATE), "wb", buffering=0) as to_file:
        os.fchmod(to_file.fileno(), _PRIVATE)
        found = os.fstat(from_file.fileno())
        left = found.st_size
        if os.fstat(to_file.fileno()).st_size != left:
            os.ftruncate(to_file.fileno(), 0)
            if left:
                os.posix_fallocate(to_file.fileno(), 0, left)
        while left:
            n = os.copy_file_range(from_file.fileno(), to_file.fileno(), left)
            if not n:
                raise OSError(errno.EIO, "the version became shorter while it was copied", source)
            left -= n
        os.fchmod(to_file.fileno(), stat.S_IMODE(found.st_mode))


def _directory_copy(source: str, target: str) -> None:
    os.chmod(target, _PRIVATE_DIRECTORY)
    for entry in os.scandir(source):
        path = os.path.join(target, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), path)
        elif entry.is_dir():
            os.mkdir(path, _PRIVATE_DIRECTORY)
            _directory_copy(entry.path, path)
        elif entry.is_file():
            _file_copy(entry.path, path)
    shutil.copymode(source, target)


def copy_all(source: str, targets: Sequence[Hidden]) -> None:
    """At the same time: each GPU has links of its own. Until a copy is complete it is this user's alone."""
    if not targets:
        return
    with ThreadPoolExecutor(len(targets)) as pool:
        for copied in [pool.submit(_directory_copy, source, target.path) for target in targets]:
            copied.result()
