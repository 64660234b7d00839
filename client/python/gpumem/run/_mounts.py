# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Whether a file is on a mount of gpumemfs, asked before torch and libgpumem are loaded."""

from __future__ import annotations

import fcntl
import os
import stat
from typing import Any, Optional

# GPUMEM_IOC_SOCKET of common/protocol.h: answered for every regular file on a mount, with any rights.
_IOC_SOCKET = 2 << 30 | 1024 << 16 | ord("g") << 8 | 0x4b


def path_of(filename: Any) -> Optional[str]:
    """None: not a path, which is for the caller of the hook to refuse."""
    try:
        return os.fsdecode(filename)
    except TypeError:
        return None


def is_on_mount(fd: int) -> bool:
    """By an answer of the daemon, because any file system can have attributes of the same names."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return False
    answer = bytearray(1024)
    try:
        fcntl.ioctl(fd, _IOC_SOCKET, answer)
    except OSError:
        return False
    return True


def device_at(path: Optional[str]) -> Optional[str]:
    """The attribute "device" of a file on a mount: the UUID of a GPU, or "host". None: any other file, or none."""
    if path is None:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        return os.fsdecode(os.getxattr(fd, "user.gpumem.device")) if is_on_mount(fd) else None
    except OSError:
        return None
    finally:
        os.close(fd)
