# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Tensors of a GPU over the queues and pipes of torch.multiprocessing, by files in place of CUDA's handles.

A process that sends has a hidden directory on the mount of each GPU, with a file for each allocation in which there are
tensors for others. Each message has a name of its file: the consumer renames the name when it has mapped the file, and
removes the name when its tensor is gone. The sender keeps a tensor's memory as long as a message of it has a name."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import threading
import time
import weakref
from multiprocessing import util
from typing import Any, NamedTuple, Optional

import torch

from .. import _cuda, _status
from .._memory import FileMemory
from .._share import share_range
from .._views import Buffer
from . import _sets, _tensors

_PREFIX, _RECEIVED = ".torch-", ".received"
_SWEEP = 0.2  # seconds between looks at the names
_DEAD_AFTER = 5.0  # seconds between looks for consumers that have ended without removing their names
_KEPT_MAX = 32 << 20  # bytes: a consumer keeps the last file mapped for the next message if it is small


class _Range(NamedTuple):
    begin: int
    size: int

    def has(self, other: _Range) -> bool:
        return self.begin <= other.begin and other.begin + other.size <= self.begin + self.size


class _Shared:
    """A file of memory that has tensors for others. storages: by the names of the messages."""

    def __init__(self, memory: _Range, buffer: Buffer) -> None:
        self.memory, self.buffer, self.storages = memory, buffer, dict[str, Any]()


class _Sender:
    """What this process has sent from a GPU. All members but the lock are under the lock."""

    def __init__(self, folder: str) -> None:
        self.folder, self.lock, self.files, self.thread = folder, threading.Lock(), list[_Shared](), False
        self.numbers, self.looked = itertools.count(), time.monotonic()

    def storage_of(self, inode: int, name: str) -> Optional[Any]:
        """The storage of a message to this process itself."""
        with self.lock:
            for shared in self.files:
                if shared.buffer._file().identity.inode == inode:
                    return shared.storages.get(os.path.basename(name))
        return None


class _Senders:
    """Of this process, by device, and not those of the parent of a fork."""

    def __init__(self) -> None:
        self.pid, self.lock, self.by_device = os.getpid(), threading.Lock(), dict[int, _Sender]()


_senders = _Senders()
_received: weakref.WeakValueDictionary[int, FileMemory] = weakref.WeakValueDictionary()
_kept: Optional[FileMemory] = None


def _own_senders() -> _Senders:
    global _senders
    if _senders.pid != os.getpid():
        _senders = _Senders()
    return _senders


def _folder_of_gpu(device: int) -> str:
    wanted = f"GPU-{getattr(torch.cuda.get_device_properties(device), 'uuid', ' without a UUID, as before torch 2.5')}"
    for where in _status.mounts():
        for volume in _status.status(where)["volumes"]:
            if volume.get("uuid") == wanted:
                return os.path.join(where, volume["name"])
    raise OSError(errno.ENOTSUP, f"no mount of gpumemfs has the GPU {wanted}")


def _folder_new(device: int) -> str:
    parent = _folder_of_gpu(device)
    for name in os.listdir(parent):
        if name.startswith(_PREFIX):
            with contextlib.suppress(OSError):  # of a sender that was killed, if it is empty
                os.rmdir(os.path.join(parent, name))
    return os.path.join(parent, _PREFIX + secrets.token_hex(8))


def _sender_of(device: int) -> _Sender:
    senders = _own_senders()
    with senders.lock:
        if device not in senders.by_device:
            senders.by_device[device] = _Sender(_folder_new(device))
        return senders.by_device[device]


def _share(sender: _Sender, memory: _Range, storage: Any) -> _Shared:
    os.makedirs(sender.folder, mode=0o700, exist_ok=True)
    path = os.path.join(sender.folder, str(next(sender.numbers)))
    shared = _Shared(memory, Buffer(share_range(path, *memory, storage, exclusive=True, stays=False)))
    sender.files.append(shared)
    return shared


def _shared_of(sender: _Sender, wanted: _Range, storage: Any) -> _Shared:
    """sender.lock is held. Only a file of a single allocation, which a kept tensor keeps, is for several tensors: of
    several allocations one could be freed, and its addresses get other memory."""
    for shared in sender.files:
        if shared.memory.has(wanted) and shared.storages:
            return shared
    memory = wanted
    if storage.device.type == "cuda":
        allocation = _Range(*_cuda.allocation(wanted.begin))
        memory = allocation if allocation.has(wanted) else wanted
    return _share(sender, memory, storage)


def _message_of(sender: _Sender, storage: Any) -> tuple[str, int, int]:
    """A new name of the storage's file, the file's inode, and the place of the storage in the file."""
    wanted = _Range(storage.data_ptr(), storage.nbytes())
    with sender.lock:
        shared = _shared_of(sender, wanted, storage)
        name = f"{os.path.basename(shared.buffer.path)}.{next(sender.numbers)}"
        path = os.path.join(sender.folder, name)
        os.link(shared.buffer.path, path)
        shared.storages[name] = storage
        if not sender.thread:
            sender.thread = True
            threading.Thread(target=_sweep_until_empty, args=(sender,), name="gpumem-queues", daemon=True).start()
    return path, shared.buffer._file().identity.inode, wanted.begin - shared.memory.begin


def _names(sender: _Sender) -> dict[str, str]:
    """The names of messages as they were sent, and as they are."""
    with contextlib.suppress(FileNotFoundError):
        return {name[:-len(_RECEIVED)] if name.endswith(_RECEIVED) else name: name
                for name in os.listdir(sender.folder) if "." in name}
    return {}


def _dead_names(sender: _Sender, names: dict[str, str]) -> list[str]:
    """Names that consumers have which do not live: of files that no process has mapped."""
    found = []
    for shared in sender.files:
        received = [names[name] for name in shared.storages if names.get(name, "").endswith(_RECEIVED)]
        if received and all(sharer.access == "own" for sharer in _status.sharers(shared.buffer.path)):
            found += received
    return found


def _sweep(sender: _Sender) -> bool:
    """Gives up what no message needs any more. Whether files are left."""
    with sender.lock:
        names = _names(sender)
        if time.monotonic() - sender.looked > _DEAD_AFTER:
            sender.looked = time.monotonic()
            with contextlib.suppress(OSError):
                for name in _dead_names(sender, names):
                    os.unlink(os.path.join(sender.folder, name))
        for shared in sender.files:
            shared.storages = {name: storage for name, storage in shared.storages.items() if name in names}
        ended = [shared for shared in sender.files if not shared.storages]
        sender.files = [shared for shared in sender.files if shared.storages]
        sender.thread = bool(sender.files)
    for shared in ended:
        shared.buffer.close()
    return sender.thread


def _sweep_until_empty(sender: _Sender) -> None:
    time.sleep(_SWEEP)
    while _sweep(sender):
        time.sleep(_SWEEP)


def _folders_remove() -> None:
    """At the end of the process, whose files end with it."""
    for sender in _own_senders().by_device.values():
        for shared in sender.files:
            shared.buffer.close()
        deadline = time.monotonic() + 1
        while os.path.isdir(sender.folder) and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.rmdir(sender.folder)
                break
            time.sleep(0.005)


util.Finalize(None, _folders_remove, exitpriority=0)  # also at the end of a child, which runs no atexit


def reduce(tensor: torch.Tensor) -> tuple[Any, tuple[Any, ...]]:
    """For pickle. OSError: the tensor's memory cannot be in a file."""
    storage, device = _tensors.storage_of(tensor), tensor.device
    if device.type == "cuda":
        # A queue pickles in a thread of its own, which has no CUDA context before.
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()
            message = _message_of(_sender_of(device.index), storage)
    else:
        message = _message_of(_sender_of(0), storage)
    return rebuild, (*message, storage.nbytes(), type(tensor), tensor.dtype, tensor.storage_offset(), tuple(tensor.shape),
                     tensor.stride(), tensor.requires_grad)


def _name_remove(name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name)


def _receive(name: str, inode: int) -> FileMemory:
    global _kept
    memory = _received.get(inode)
    if memory is None:
        file = {"name": os.path.basename(name), "inode": inode}
        memory = _received[inode] = _sets.buffer_open(os.path.dirname(name), file, "r+")._file()
        memory.dlpack_address()  # the lease, before the name says that there is one
        _kept = memory if memory.size <= _KEPT_MAX else None
    os.rename(name, name + _RECEIVED)
    return memory


class _Part:
    """The bytes of a message, as long as torch has them."""

    def __init__(self, memory: FileMemory, size: int) -> None:
        self.memory, self.size = memory, size


def _storage(name: str, inode: int, begin: int, size: int) -> Any:
    for sender in _own_senders().by_device.values():
        storage = sender.storage_of(inode, name)
        if storage is not None:
            os.unlink(name)
            return storage
    memory = _receive(name, inode)
    part = _Part(memory, size)
    weakref.finalize(part, _name_remove, name + _RECEIVED)
    return _tensors.storage_at(part, memory.dlpack_address() + begin, memory.dlpack_device())


def rebuild(name: str, inode: int, begin: int, size: int, kind: Any, dtype: torch.dtype, offset: int,
            shape: tuple[int, ...], strides: tuple[int, ...], requires_grad: bool) -> torch.Tensor:
    """The tensor of a message. OSError with ESTALE: the process that sent it has ended."""
    storage = _storage(name, inode, begin, size)
    tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, strides)
    if kind is torch.nn.parameter.Parameter:
        return torch.nn.parameter.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)
