# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The files of the root, and the files that the other ranks write: partial files until all bytes have arrived."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from typing import Any, NamedTuple, Optional

from .._identity import machine
from .._memory import FileMemory
from ._folders import Place, is_trusted, named

SUFFIX = ".gpumem-part"
# gpumem cp notes in this attribute of a partial file how much it has copied.
CP_NOTE = "user.gpumem-cp"
_NAME_MAX = 255


class Entry(NamedTuple):
    """A file of the root. name: below the directory, "" if the path is a file."""

    name: str
    size: int
    mode: int


def _entry(path: str, name: str) -> Entry:
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return Entry(name, found.st_size, stat.S_IMODE(found.st_mode))


def _order(entry: Entry) -> tuple[bool, str]:
    """Tensors first, because programs find them by the other files."""
    return not entry.name.endswith(".safetensors"), entry.name


def scan(path: str) -> list[Entry]:
    """The file, or the files below the directory, without hidden ones. Links to files are followed."""
    if not os.path.isdir(path):
        return [_entry(path, "")]
    found = []
    for folder, folders, names in os.walk(path, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                whole = os.path.join(folder, name)
                found.append(_entry(whole, os.path.relpath(whole, path)))
    if not found:
        raise OSError(errno.ENOENT, "the directory contains no files", path)
    return sorted(found, key=_order)


def _raise(error: OSError) -> None:
    raise error


def check(entries: Any) -> None:
    """ValueError: the root's list leads out of the destination."""
    for entry in entries:
        parts = entry.name.split("/")
        if entry.name and (os.path.isabs(entry.name) or not {"", ".", ".."}.isdisjoint(parts)) or "\0" in entry.name:
            raise ValueError(f"the root names {entry.name!r}, which is not a file below its directory")


def target(path: str, entry: Entry) -> str:
    return os.path.join(path, entry.name) if entry.name else path


def place(path: str, is_directory: bool) -> tuple[Any, ...]:
    """The identity of a path: of its directory, on this machine, and its name there."""
    whole = os.path.realpath(path)
    folder, name = (whole, "") if is_directory else os.path.split(whole)
    found = os.stat(folder)
    return machine(), found.st_dev, found.st_ino, name


def identity(where: Place) -> tuple[Any, ...]:
    """The same of an open directory and a name."""
    found = os.fstat(where.folder)
    return machine(), found.st_dev, found.st_ino, where.name


def _lease(fd: int, name: str) -> Optional[FileMemory]:
    """The memory of an open file, or None if there is none that this process may use in place."""
    trusted = False
    with contextlib.suppress(OSError):
        trusted = os.getxattr(fd, "user.gpumem.share") == b"trusted"
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY and not trusted:
        return None
    try:
        return FileMemory.open_fd_timed(fd, name)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOENT):  # not on gpumemfs; no libgpumem here
            return None
        raise


def _open_both(name: str, flags: int, dir_fd: Optional[int] = None) -> int:
    """For reading and writing, so that a GPU may use the memory in place; for reading alone where no more is allowed."""
    flags |= os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(name, os.O_RDWR | flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ETXTBSY):
            raise
        return os.open(name, os.O_RDONLY | flags, dir_fd=dir_fd)


def _pinned(size: int) -> Any:
    import torch
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


class Bytes:
    """The bytes of an open file, in place where possible, otherwise through two buffers: copied by the file's GPU if the
    engine has CUDA, else read and written."""

    def __init__(self, fd: int, size: int, name: str) -> None:
        self.fd, self.size, self.name = fd, size, name
        self._memory = _lease(fd, name) if size else None
        self._view: Any = None
        self._staged: Any = None
        self._buffers: list[Any] = []
        if self._memory is not None and self._memory.size != size:
            raise OSError(errno.ESTALE, "the file changed its size", name)

    def device(self) -> Optional[str]:
        """The GPU whose memory the file is."""
        memory = self._memory
        return None if memory is None or memory.on_cpu else memory.uuid_bytes.hex()

    def prepare(self, engine: Any, cuda: bool, piece: int) -> None:
        """cuda: pieces are tensors on the file's GPU, otherwise what the engine wraps."""
        self.rest()
        if cuda:
            self._view = self._on_gpu()
        elif engine.has_cuda and self.device() is not None:
            self._staged = self._on_gpu()
            self._buffers = [_pinned(min(piece, self.size)) for _ in range(2)]
        elif self._memory is not None and self._memory.on_cpu:
            self._view = engine.wrap(self._memory.bytes(0, self.size))
        else:
            self._memory = None
            self._buffers = [bytearray(min(piece, self.size)) for _ in range(2)]
        self._wrap = engine.wrap

    def _on_gpu(self) -> Any:
        from ..torch import _tensors
        assert self._memory is not None
        return _tensors.bytes_at(_tensors.storage_over(self._memory), 0, self.size)

    def room(self, number: int, begin: int, end: int) -> Any:
        """The buffer for a piece."""
        if self._view is not None:
            return self._view[begin:end]
        buffer = self._buffers[number % 2]
        return buffer[:end - begin] if self._staged is not None else self._wrap(memoryview(buffer)[:end - begin])

    def summed(self, number: int, begin: int, end: int, load: bool = False) -> Any:
        """The bytes of a piece for the checksum. load: the buffer does not have them yet. OSError."""
        if self._staged is not None:
            return self._staged[begin:end]
        return (self.load if load else self.room)(number, begin, end)

    def load(self, number: int, begin: int, end: int) -> Any:
        """The buffer with the bytes of a piece. OSError."""
        if self._staged is not None:
            self.room(number, begin, end).copy_(self._staged[begin:end])
        elif self._view is None:
            room, done = memoryview(self._buffers[number % 2])[:end - begin], 0
            while done < len(room):
                with self._named():
                    count = os.preadv(self.fd, [room[done:]], begin + done)
                if not count:
                    raise OSError(errno.ESTALE, "the file became shorter", self.name)
                done += count
        return self.room(number, begin, end)

    def store(self, number: int, begin: int, end: int) -> None:
        """Writes the buffer of a piece. OSError."""
        if self._staged is not None:
            self._staged[begin:end].copy_(self.room(number, begin, end))
        elif self._view is None:
            room, done = memoryview(self._buffers[number % 2])[:end - begin], 0
            while done < len(room):
                with self._named():
                    done += os.pwrite(self.fd, room[done:], begin + done)

    @contextlib.contextmanager
    def _named(self) -> Any:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.name) from None

    def rest(self) -> None:
        """Frees the buffers until the next prepare()."""
        self._view, self._staged, self._buffers = None, None, []

    def release(self) -> None:
        self.rest()
        self._memory = None


class Source:
    """A file of the root, open for the whole copy."""

    def __init__(self, path: str, entry: Entry) -> None:
        self.fd = _open_both(path, 0)
        self.path, self._entry, self._state = path, entry, self._now()
        if self._state[0] != entry.size:
            raise OSError(errno.ESTALE, "the file changed its size", path)
        self.bytes = Bytes(self.fd, entry.size, path)

    def _now(self) -> tuple[int, int]:
        found = os.fstat(self.fd)
        return found.st_size, found.st_mtime_ns

    def finish(self) -> None:
        if self._now() != self._state:
            raise OSError(errno.ESTALE, "the file changed during the broadcast", self.path)

    def close(self) -> None:
        self.bytes.release()
        os.close(self.fd)


def partial_name(name: str) -> str:
    """As gpumem cp names partial files."""
    hidden = f".{name}{SUFFIX}"
    if len(os.fsencode(hidden)) > _NAME_MAX:
        raise OSError(errno.ENAMETOOLONG, "the name is too long for a partial file", name)
    return hidden


def _check_partial(fd: int, where: Place, path: str) -> os.stat_result:
    """Accepts only a regular file of this user, with one name and locked by this process: neither a link nor a file of
    another user."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another process is writing this file", path) from None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
        raise OSError(errno.EEXIST, "not a partial file of this user: remove it", path)
    there = os.stat(where.name, dir_fd=where.folder, follow_symlinks=False)
    if (there.st_dev, there.st_ino) != (found.st_dev, found.st_ino):
        raise OSError(errno.EBUSY, "another process is writing this file", path)
    return found


def _create_partial(where: Place, path: str) -> int:
    """A new file. Another user may have an old one open that was not for this user alone from its start on."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with named(path):
        fd = os.open(where.name, flags, 0o600, dir_fd=where.folder)
    try:
        _check_partial(fd, where, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_partial(where: Place, path: str) -> tuple[int, int]:
    """The descriptor of the partial file, locked, and its size: 0 for a new one. OSError."""
    try:
        with named(path):
            fd = os.open(where.name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=where.folder)
    except FileNotFoundError:
        return _create_partial(where, path), 0
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.EEXIST, "not a partial file of this user: remove it", path) from None
        raise
    try:
        found = _check_partial(fd, where, path)
        if stat.S_IMODE(found.st_mode) == 0o600:
            with contextlib.suppress(OSError):
                os.removexattr(fd, CP_NOTE)
            return fd, found.st_size
        os.unlink(where.name, dir_fd=where.folder)
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return _create_partial(where, path), 0


def _allocate(fd: int, size: int, path: str) -> None:
    os.ftruncate(fd, size)
    try:
        if size:
            os.posix_fallocate(fd, 0, size)
    except OSError as error:
        raise OSError(error.errno, f"no room for {size} bytes: {os.strerror(error.errno or 0)}", path) from None


def _umask() -> int:
    """umask(2) would change the mask of all threads for a moment."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))


class Target:
    """A file to be written. kept: bytes of an earlier run, or of an old file of the same size, may be the root's."""

    def __init__(self, path: str, entry: Entry, where: Place) -> None:
        self.path, self._entry, self._where = path, entry, where
        self.bytes: Optional[Bytes] = None
        self._fd, self._written, self.complete = -1, False, False
        self._beside = Place(where.folder, partial_name(where.name))
        self._partial = os.path.join(os.path.dirname(path), self._beside.name)
        old = self._old_state()
        self._mode = entry.mode & 0o777 & ~_umask() if old is None else stat.S_IMODE(old.st_mode) & 0o777
        if old is not None and old.st_size == entry.size and not self._is_partial() and self._open_old():
            self.bytes, self.kept = Bytes(self._fd, entry.size, self.path), True
        else:
            self._open_partial()

    def _old_state(self) -> Optional[os.stat_result]:
        """The file whose permissions the new one is to have. None: there is none, but a link, which is replaced, or a file
        that another user has made ahead."""
        try:
            found = os.stat(self._where.name, dir_fd=self._where.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", self.path)
        return found if stat.S_ISREG(found.st_mode) and is_trusted(self._where.folder, found) else None

    def _is_partial(self) -> bool:
        try:
            os.stat(self._beside.name, dir_fd=self._beside.folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _open_old(self) -> bool:
        """Opens the old file, which may be what the root has."""
        with contextlib.suppress(OSError):
            self._fd = _open_both(self._where.name, os.O_NOFOLLOW, self._where.folder)
        return self._fd >= 0

    def _open_partial(self) -> None:
        self._fd, size = open_partial(self._beside, self._partial)
        self.kept = bool(size) and size == self._entry.size
        try:
            if not self.kept:
                os.ftruncate(self._fd, 0)
            _allocate(self._fd, self._entry.size, self.path)
            self.bytes = Bytes(self._fd, self._entry.size, self._partial)
        except BaseException:
            self.close()
            raise

    def compared(self, same: bool) -> None:
        """After a comparison with the root: an old file that differs is replaced by a new one."""
        if same or self.bytes is None or self.bytes.name == self._partial:
            self.complete = same and self.bytes is not None and self.bytes.name == self.path
            return
        self.close()
        self._open_partial()

    def begin(self) -> None:
        self._written = True

    def finish(self) -> None:
        """Gives the complete file its name."""
        if self.complete:
            return
        assert self.bytes is not None
        self.bytes.release()
        os.fchmod(self._fd, self._mode)
        with named(self.path):
            os.rename(self._beside.name, self._where.name, src_dir_fd=self._where.folder,
                      dst_dir_fd=self._where.folder)
        self.complete = True

    def close(self) -> None:
        """A partial file that has got bytes stays for the next run."""
        if self._fd < 0:
            return
        name = self.bytes.name if self.bytes else self._partial
        if name == self._partial and not (self.complete or self._written or self.kept):
            with contextlib.suppress(OSError):
                os.unlink(self._beside.name, dir_fd=self._beside.folder)
        if self.bytes:
            self.bytes.release()
        os.close(self._fd)
        self._fd = -1
