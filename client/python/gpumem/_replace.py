# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A file that is written beside another and then takes its place, as client/lib/replace.c does it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Optional

_FLAGS = os.O_RDWR | os.O_CLOEXEC


def _present(path: str) -> Optional[os.stat_result]:
    """What there is to replace."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is not a regular file")
    return status


def _through_proc(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


class _New:
    """The new file. Without a name where that can be, so that nothing stays of it if the process is
    killed; beside: its name, as long as it has one that is not its own."""

    def __init__(self, folder: int, mode: int) -> None:
        self.folder, self.fd, self.beside = folder, -1, ""
        with contextlib.suppress(OSError):
            self.fd = os.open(".", _FLAGS | os.O_TMPFILE, mode, dir_fd=folder)
            if not os.path.exists(_through_proc(self.fd)):
                os.close(self.fd)
                self.fd = -1
        while self.fd < 0:
            self.beside = self._name()
            with contextlib.suppress(FileExistsError):
                self.fd = os.open(self.beside, _FLAGS | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)

    @staticmethod
    def _name() -> str:
        return f".gpumem-{secrets.token_hex(8)}"

    def _link(self, name: str) -> bool:
        """Whether it has the name now; another file may."""
        try:
            # With a folder, the link of /proc is followed.
            os.link(_through_proc(self.fd), name, src_dir_fd=self.folder, dst_dir_fd=self.folder, follow_symlinks=True)
        except FileExistsError:
            return False
        return True

    def put(self, name: str, free: bool) -> None:
        os.close(os.dup(self.fd))  # what a filesystem keeps of errors until then
        if not self.beside:
            if free and self._link(name):
                return
            beside = self._name()
            while not self._link(beside):
                beside = self._name()
            self.beside = beside
        os.rename(self.beside, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        self.beside = ""

    def close(self) -> None:
        os.close(self.fd)
        if self.beside:
            os.unlink(self.beside, dir_fd=self.folder)


@contextlib.contextmanager
def replacing(path: str, mode: int) -> Iterator[int]:
    """The new file, to read and write. When the block is done it takes the place of the file at path, or
    of the one that a link there leads to, with its permissions; where there is none it gets mode, less
    the umask. If anything fails, nothing has changed."""
    present = _present(path)
    where, name = os.path.split(os.path.realpath(path) if present else path)
    if not name:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    folder = os.open(where or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        new = _New(folder, 0o600 if present else mode & 0o777)
        try:
            yield new.fd
            if present:
                os.fchmod(new.fd, present.st_mode & 0o777)
            new.put(name, not present)
        finally:
            new.close()
    finally:
        os.close(folder)
