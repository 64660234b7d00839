# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""What a file is, whatever path leads to the file."""

from __future__ import annotations

import functools
import os
import socket
from typing import NamedTuple


@functools.lru_cache(maxsize=None)
def machine() -> str:
    """A name of this machine which all of its containers share, until the machine starts again."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


class Identity(NamedTuple):
    """Device and inode numbers mean other files on another machine."""

    machine: str
    filesystem: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> Identity:
        return cls(machine(), found.st_dev, found.st_ino)
