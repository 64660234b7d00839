# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Tensors of a GPU over the queues and pipes of torch.multiprocessing, by files in place of CUDA's handles.

A process that sends has a hidden directory on the mount of each GPU, with a file for each allocation in which there are
tensors for others. Each message has a name of its file: the consumer renames the name when it has mapped the file, and
removes the name when its tensor is gone and its GPU has done the work that was begun. The sender keeps a tensor's memory
as long as a message of it has a name."""

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
from typing import Any, NamedTuple, Optional, Union

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


class _Message(NamedTuple):
    """A tensor's storage that is kept for a message, and where its bytes were: a program may resize a storage."""

    storage: Any
    place: _Range

    def is_in_place(self) -> bool:
        return (self.storage.data_ptr(), self.storage.nbytes()) == self.place


class _Shared:
    """A file of memory that has tensors for others. messages: by their names."""

    def __init__(self, memory: _Range, buffer: Buffer) -> None:
        self.memory, self.buffer, self.messages = memory, buffer, dict[str, _Message]()

    def keeps_memory(self) -> bool:
        """Whether a kept storage still keeps the allocation, so that the addresses have the file's memory."""
        return any(message.is_in_place() for message in self.messages.values())


class _Sender:
    """What this process has sent from a GPU. All members but the lock are under the lock."""

    def __init__(self, parent: str) -> None:
        self.parent, self.lock, self.thread = parent, threading.Lock(), False
        self.files, self.numbers, self.looked = dict[_Range, _Shared](), itertools.count(), time.monotonic()
        self.folder = _folder_new(parent)

    def storage_of(self, name: str) -> Optional[Any]:
        """The storage of a message to this process itself."""
        folder, last = os.path.split(name)
        with self.lock:
            for shared in self.files.values() if folder == self.folder else ():
                if last in shared.messages:
                    return shared.messages[last].storage
        return None


class _Process:
    """Of this process, and not of the parent of a fork: what it sends, by device; the files it has received, by device
    and inode; the last of them."""

    def __init__(self) -> None:
        self.pid, self.lock, self.senders = os.getpid(), threading.Lock(), dict[int, Union[_Sender, OSError]]()
        self.received: weakref.WeakValueDictionary[tuple[int, int], FileMemory] = weakref.WeakValueDictionary()
        self.last: Optional[FileMemory] = None

    def senders_alive(self) -> list[_Sender]:
        return [sender for sender in list(self.senders.values()) if isinstance(sender, _Sender)]


_process = _Process()


def _own() -> _Process:
    global _process
    if _process.pid != os.getpid():
        _process = _Process()
    return _process


def _folder_of_gpu(device: int) -> str:
    wanted = f"GPU-{getattr(torch.cuda.get_device_properties(device), 'uuid', ' without a UUID, as before torch 2.5')}"
    for where in _status.mounts():
        for volume in _status.status(where)["volumes"]:
            if volume.get("uuid") == wanted:
                return os.path.join(where, volume["name"])
    raise OSError(errno.ENOTSUP, f"no mount of gpumemfs has the GPU {wanted}")


def _folder_new(parent: str) -> str:
    """Removes the folders of senders that were killed: the empty ones. All users may make names in the parent."""
    for entry in os.scandir(parent):
        if entry.name.startswith(_PREFIX):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    os.rmdir(entry.path)
    folder = os.path.join(parent, _PREFIX + secrets.token_hex(8))
    os.mkdir(folder, 0o700)
    return folder


def _sender_of(device: int) -> _Sender:
    """OSError: no mount has the GPU, which is not looked for again."""
    own = _own()
    with own.lock:
        sender = own.senders.get(device)
        if sender is None:
            try:
                sender = _Sender(_folder_of_gpu(device))
            except OSError as error:
                sender = error
            own.senders[device] = sender
    if isinstance(sender, OSError):
        raise sender
    return sender


def _share(sender: _Sender, memory: _Range, storage: Any) -> _Shared:
    """sender.lock is held."""
    name = str(next(sender.numbers))

    def share() -> FileMemory:
        return share_range(os.path.join(sender.folder, name), *memory, storage, exclusive=True, stays=False, mode=0o600)
    try:
        file = share()
    except FileNotFoundError:  # another sender has taken the empty folder for that of a killed one
        sender.folder = _folder_new(sender.parent)
        file = share()
    shared = sender.files[memory] = _Shared(memory, Buffer(file))
    return shared


def _shared_of(sender: _Sender, wanted: _Range, storage: Any) -> _Shared:
    """sender.lock is held. Only a file of a single allocation, which a kept tensor keeps, is for several tensors: of
    several allocations one could be freed, and its addresses get other memory."""
    memory = wanted
    if storage.device.type == "cuda":
        allocation = _Range(*_cuda.allocation(wanted.begin))
        memory = allocation if allocation.has(wanted) else wanted
    shared = sender.files.get(memory)
    if shared is None:
        return _share(sender, memory, storage)
    if shared.keeps_memory():
        return shared
    sender.files[_Range(-1 - next(sender.numbers), 0)] = sender.files.pop(memory)  # for its messages alone
    return _share(sender, memory, storage)


def _message_of(sender: _Sender, storage: Any) -> tuple[str, int]:
    """A new name of the storage's file, and the place of the storage in the file."""
    wanted = _Range(storage.data_ptr(), storage.nbytes())
    with sender.lock:
        shared = _shared_of(sender, wanted, storage)
        name = f"{os.path.basename(shared.buffer.path)}.{next(sender.numbers)}"
        path = os.path.join(sender.folder, name)
        if not sender.thread:
            threading.Thread(target=_sweep_until_empty, args=(sender,), name="gpumem-queues", daemon=True).start()
            sender.thread = True
        os.link(shared.buffer.path, path)
        shared.messages[name] = _Message(storage, wanted)
    return path, wanted.begin - shared.memory.begin


def _names(sender: _Sender) -> dict[str, str]:
    """The names of messages as they were sent, and as they are."""
    return {name[:-len(_RECEIVED)] if name.endswith(_RECEIVED) else name: name
            for name in os.listdir(sender.folder) if "." in name}


def _mapped_inodes(sender: _Sender) -> set[int]:
    """Of the files that processes beside their senders have mapped."""
    return {lease["inode"] for lease in _status.status(sender.parent)["leases"] if lease["access"] != "own"}


def _dead_names(sender: _Sender, names: dict[str, str], mapped: set[int]) -> list[str]:
    """Names that consumers have which do not live: of files that no process has mapped."""
    return [names[name] for shared in sender.files.values() for name in shared.messages
            if names.get(name, "").endswith(_RECEIVED) and shared.buffer._file().identity.inode not in mapped]


def _wrong_names(sender: _Sender, names: dict[str, str]) -> list[str]:
    """Messages under way whose storage was resized: the consumer gets an error, and not other bytes."""
    return [name for shared in sender.files.values() for name, message in shared.messages.items()
            if names.get(name) == name and not message.is_in_place()]


def _sweep(sender: _Sender) -> bool:
    """Gives up what no message needs any more. Whether files are left. OSError: what is left is not known."""
    looks = time.monotonic() - sender.looked > _DEAD_AFTER
    mapped = _mapped_inodes(sender) if looks else set()
    with sender.lock:
        names = _names(sender)
        gone = _wrong_names(sender, names)
        if looks:
            sender.looked = time.monotonic()
            gone += _dead_names(sender, names, mapped)
        for name in gone:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(sender.folder, name))
        for shared in sender.files.values():
            shared.messages = {name: message for name, message in shared.messages.items() if name in names}
        ended = [memory for memory, shared in sender.files.items() if not shared.messages]
        buffers = [sender.files.pop(memory).buffer for memory in ended]
        sender.thread = bool(sender.files)
    for buffer in buffers:
        buffer.close()
    return sender.thread


def _sweep_until_empty(sender: _Sender) -> None:
    left = True
    while left:
        time.sleep(_SWEEP)
        with contextlib.suppress(Exception):  # a failure of the mount or of a limit, which may end
            left = _sweep(sender)


def _folders_remove() -> None:
    """At the end of the process, whose files end with it."""
    for sender in _own().senders_alive():
        with sender.lock:
            files, sender.files = sender.files, {}
        for shared in files.values():
            shared.buffer.close()
        deadline = time.monotonic() + 1
        while os.path.isdir(sender.folder) and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.rmdir(sender.folder)
                break
            time.sleep(0.005)


# After children were joined and queues have sent what they have; also in a child, which runs no atexit.
util.Finalize(None, _folders_remove, exitpriority=-100)


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
    # In the places that torch's own function has, of which programs know the device's.
    return rebuild, (type(tensor), tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), None, tensor.dtype,
                     device.index, message[0], storage.nbytes(), message[1], tensor.requires_grad)


def _name_remove(name: str, memory: FileMemory, pid: int) -> None:
    """A program drops a tensor as soon as its last kernel was launched. A child of a fork does not have the tensor."""
    if os.getpid() != pid:
        return
    with contextlib.suppress(Exception):
        memory.wait()
    with contextlib.suppress(OSError):
        os.unlink(name)


def _receive(name: str) -> FileMemory:
    own = _own()
    try:
        found = os.lstat(name)
    except FileNotFoundError:
        raise OSError(errno.ESTALE, "the process that sent the tensor has ended, or has resized it", name) from None
    memory = own.received.get((found.st_dev, found.st_ino))
    if memory is None:
        file = {"name": os.path.basename(name), "inode": found.st_ino}
        memory = _sets.buffer_open(os.path.dirname(name), file, "r+")._file()
        own.received[found.st_dev, found.st_ino] = memory
        memory.dlpack_address()  # the lease, before the name says that there is one
        own.last = memory if memory.size <= _KEPT_MAX else None
    os.rename(name, name + _RECEIVED)
    return memory


class _Part:
    """The bytes of a message, as long as torch has them."""

    def __init__(self, memory: FileMemory, size: int) -> None:
        self.memory, self.size = memory, size


def _storage(name: str, begin: int, size: int) -> Any:
    for sender in _own().senders_alive():
        storage = sender.storage_of(name)
        if storage is not None:
            os.unlink(name)
            return storage
    memory = _receive(name)
    part = _Part(memory, size)
    weakref.finalize(part, _name_remove, name + _RECEIVED, memory, os.getpid())
    return _tensors.storage_at(part, memory.dlpack_address() + begin, memory.dlpack_device())


def rebuild(kind: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, _: None, dtype: torch.dtype,
            device: Any, name: str, size: int, begin: int, requires_grad: bool) -> torch.Tensor:
    """The tensor of a message, on the GPU of its memory, whatever device says. OSError with ESTALE: the process that
    sent it has ended."""
    storage = _storage(name, begin, size)
    tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, strides)
    if kind is torch.nn.parameter.Parameter:
        return torch.nn.parameter.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)
