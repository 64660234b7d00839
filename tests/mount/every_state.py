# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Files in every state that a mount can keep, and what must be the same after another daemon has taken the mount over.
The mount has a spool, and places for memory that leaves the GPU."""

import fcntl
import mmap
import os
import random
import stat
import subprocess
from pathlib import Path

from python_case import equal, eventually, leases

OWNER, OTHER = 60001, 60002
MEGABYTE = 1 << 20
LEASED = 256 << 10
IOC_DROP = 2 << 30 | 8 << 16 | ord("g") << 8 | 0x4c
PREFIX = "user.gpumem."


class Client:
    """client_tool of a build, over pipes: a process with leases."""

    def __init__(self, program, environment):
        self.process = subprocess.Popen([program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self, wanted, *command):
        self.process.stdin.write(" ".join(map(str, command)) + "\n")
        self.process.stdin.flush()
        equal(f"the client's answer to {command}", self.process.stdout.readline().rstrip(), wanted)

    def end(self):
        self.process.stdin.close()
        equal("the client's status", self.process.wait(), 0)


def xattrs_of(path, mode):
    """The attributes, also those that the mount computes. Of links and nodes only their names are read."""
    names = set(os.listxattr(path, follow_symlinks=False))
    if stat.S_ISDIR(mode):
        names |= {PREFIX + name for name in ("rbytes", "rfiles", "quota.max_bytes", "quota.max_files")}
    elif stat.S_ISREG(mode):
        names |= {PREFIX + name for name in ("resident", "leases", "page_size", "priority", "persist")}
    else:
        return {"names": names}
    found = {}
    for name in sorted(names):
        try:
            found[name] = os.getxattr(path, name)
        except OSError as error:
            found[name] = error.errno
    return found


def metadata_of(path):
    info = os.lstat(path)
    fields = ("st_ino", "st_mode", "st_nlink", "st_uid", "st_gid", "st_rdev", "st_size", "st_blocks", "st_mtime_ns", "st_ctime_ns")
    target = os.readlink(path) if stat.S_ISLNK(info.st_mode) else None
    return {field: getattr(info, field) for field in fields} | {"target": target} | xattrs_of(path, info.st_mode)


class EveryState:
    """The files below gpu0/ and host/ of a mount."""

    def __init__(self, mount, seed=1):
        self.mount, self.random = Path(mount), random.Random(seed)
        self.content, self.metadata = {}, {}
        self.fds, self.clients, self.mappings, self.removed = {}, [], {}, set()

    def file(self, name, size, **attributes):
        path = self.mount / name
        self.content[path] = bytearray(self.random.randbytes(size))
        path.write_bytes(self.content[path])
        for attribute, value in attributes.items():
            os.setxattr(path, PREFIX + attribute, value.encode())
        return path

    def make(self):
        for volume in ("gpu0", "host"):
            folder = self.mount / volume / "all"
            folder.mkdir()
            self.make_contents(volume)
            self.make_names(folder)
            self.make_quota(folder)
            self.make_open(folder)
        for place in ("host", "disk", "evicted"):
            self.file(f"gpu0/all/in-{place}", 3 * MEGABYTE + 5, resident=place)
        self.file("gpu0/all/on-disk-small", 7000, resident="disk")
        self.file("gpu0/all/in-host-and-changed", 3 * MEGABYTE, resident="host")
        with open(self.mount / "gpu0/all/in-host-and-changed", "r+b") as file:
            file.write(b"changed there")
        self.content[self.mount / "gpu0/all/in-host-and-changed"][:13] = b"changed there"
        self.make_persistent()

    def make_contents(self, volume):
        self.file(f"{volume}/all/empty", 0)
        for size in (1, 4097, 70001, 2 * MEGABYTE, 5 * MEGABYTE + 123):
            self.file(f"{volume}/all/size{size}", size)
        holes = self.file(f"{volume}/all/holes", 100)
        with open(holes, "r+b") as file:
            os.pwrite(file.fileno(), b"end", 6 * MEGABYTE)
            os.ftruncate(file.fileno(), 8 * MEGABYTE)
        content = self.content[holes]
        content.extend(bytes(8 * MEGABYTE - len(content)))
        content[6 * MEGABYTE:6 * MEGABYTE + 3] = b"end"
        cut = self.file(f"{volume}/all/cut", 300000)
        os.truncate(cut, 12345)
        os.truncate(cut, 20000)
        self.content[cut][12345:] = bytes(20000 - 12345)
        reserved = self.file(f"{volume}/all/reserved", 5000)
        subprocess.run(["fallocate", "-n", "-l", "3M", reserved], check=True)
        if volume == "gpu0":
            self.file("gpu0/all/pages", MEGABYTE, page_size="64K")
            self.file("gpu0/all/important", 5000, priority="7")

    def make_names(self, folder):
        first = folder / "size4097"
        os.link(first, folder / "second name")
        self.content[folder / "second name"] = self.content[first]
        (folder / "deep" / "er").mkdir(parents=True)
        moved = self.file(folder.relative_to(self.mount) / "deep" / "before", 9000)
        os.rename(moved, folder / "deep" / "er" / ("n" * 255))
        self.content[folder / "deep" / "er" / ("n" * 255)] = self.content.pop(moved)
        os.symlink("../size1", folder / "deep" / "link")
        os.symlink("t" * 4000, folder / "long link")
        os.mkfifo(folder / "fifo", 0o640)
        os.mknod(folder / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.chown(first, OWNER, OTHER)
        os.chmod(first, 0o4751)
        os.utime(folder / "size1", ns=(1234567890123456789, 987654321987654321))
        os.setxattr(first, "user.note", b"\0any bytes\xff")
        os.setxattr(folder / "deep", "user.large", b"x" * 30000)
        for n in range(40):
            self.file(f"{folder.relative_to(self.mount)}/deep/many{n}", 10 * n)
        for n in range(0, 40, 3):
            path = folder / "deep" / f"many{n}"
            path.unlink()
            del self.content[path]

    def make_quota(self, folder):
        limited = folder / "limited"
        limited.mkdir()
        os.chown(limited, OWNER, OWNER)
        os.setxattr(limited, PREFIX + "quota.max_bytes", b"8M")
        os.setxattr(limited, PREFIX + "quota.max_files", b"3")
        self.file(limited.relative_to(self.mount) / "some", 3 * MEGABYTE)

    def make_persistent(self):
        folder = self.mount / "gpu0" / "saved"
        folder.mkdir()
        os.setxattr(folder, PREFIX + "persist", b"disk")
        for name in ("saved", "changed"):
            path = self.file(f"gpu0/saved/{name}", 2 * MEGABYTE + 77)
            fd = os.open(path, os.O_RDWR)
            os.fsync(fd)
            os.close(fd)
        with open(folder / "changed", "r+b") as file:
            file.write(b"not saved yet")
        self.content[folder / "changed"][:13] = b"not saved yet"

    def make_open(self, folder):
        """Handles of a file, and of a file without a name; and a mapping with a page that is not saved."""
        path = self.file(folder.relative_to(self.mount) / "open", 60000)
        self.fds[path] = os.open(path, os.O_RDWR | os.O_APPEND)
        gone = self.file(folder.relative_to(self.mount) / "unlinked", 3 * MEGABYTE)
        self.fds[gone] = os.open(gone, os.O_RDWR)
        self.remove(gone)
        path = self.file(folder.relative_to(self.mount) / "mapped", 16384)
        with open(path, "r+b") as file:
            self.mappings[path] = mmap.mmap(file.fileno(), 16384)
        self.store(path, 5000, b"stored into a page")

    def remove(self, path):
        path.unlink()
        self.removed.add(path)

    def store(self, path, at, text):
        self.mappings[path][at:at + len(text)] = text
        self.content[path][at:at + len(text)] = text

    def lease(self, name, client, then=None):
        """The client maps a file of 256 KiB and stores a byte. Then its leases are dropped, or it is removed, if
        wanted."""
        path = self.file(name, LEASED)
        client.says("ok 0", "open", path, "w")
        client.says(f"ok {LEASED}", "map")
        self.lease_store(path, client, 9)
        self.clients.append((path, client))
        fd = os.open(path, os.O_RDWR)
        if then == "drop":
            fcntl.ioctl(fd, IOC_DROP, bytes(8))
            equal("leases after a drop", leases(path), 0)
        if then == "remove":
            self.fds[path] = fd
            self.remove(path)
        else:
            os.close(fd)

    def lease_store(self, path, client, value):
        client.says("ok 0", "store", 100000, value)
        self.content[path][100000] = value

    def walk(self):
        yield from (self.mount / ".gpumem" / name for name in os.listdir(self.mount / ".gpumem"))
        for volume in ("gpu0", "host"):
            for folder, folders, files in os.walk(self.mount / volume):
                yield from (Path(folder) / name for name in folders + files)

    def charge_is_right(self):
        """Whether host/all is charged for the memory that its files have: mapped files are charged a moment later."""
        folder = self.mount / "host" / "all"
        files = [os.lstat(path) for path in self.walk() if folder in path.parents]
        files += [os.fstat(fd) for path, fd in self.fds.items() if folder in path.parents]
        bytes_of = {info.st_ino: info.st_blocks * 512 for info in files}
        return int(os.getxattr(folder, PREFIX + "rbytes")) == sum(bytes_of.values())

    def note(self):
        eventually("host/all is charged for its files", self.charge_is_right)
        self.metadata = {path: metadata_of(path) for path in self.walk()}

    def check_metadata(self, when):
        found = {path: metadata_of(path) for path in self.walk()}
        equal(f"{when}: names", sorted(found), sorted(self.metadata))
        for path, before in self.metadata.items():
            # Programs with a mapping or a lease may have stored, so that times move; in .gpumem/ it is always now.
            moves = path in self.mappings or path in dict(self.clients) or path.parent.name == ".gpumem"
            moving = {"st_mtime_ns", "st_ctime_ns"} if moves else set()
            differ = {key: (before.get(key), found[path].get(key)) for key in before | found[path]
                      if key not in moving and before.get(key) != found[path].get(key)}
            equal(f"{when}: what differs in {path}", differ, {})

    def check_bytes(self, when):
        for path, content in self.content.items():
            if path in self.removed:
                got = os.pread(self.fds[path], len(content) + 1, 0)
            else:
                got = path.read_bytes()
            equal(f"{when}: {path} has its {len(content)} bytes", got == content, True)
        for path, mapping in self.mappings.items():
            equal(f"{when}: the mapping of {path}", mapping[:] == self.content[path], True)

    def check_use(self, when):
        """Handles, mappings, leases and quotas go on."""
        for path, fd in self.fds.items():
            if path.name == "open":
                os.write(fd, b"appended")
                self.content[path].extend(b"appended")
            elif path.name == "unlinked":
                os.pwrite(fd, b"changed", 2 * MEGABYTE)
                self.content[path][2 * MEGABYTE:2 * MEGABYTE + 7] = b"changed"
        for path in self.mappings:
            self.store(path, 9000, b"stored later")
        for n, (path, client) in enumerate(self.clients):
            client.says(f"ok {self.content[path][100000]}", "read", 100000)
            self.lease_store(path, client, 20 + n)
            fd = os.dup(self.fds[path]) if path in self.removed else os.open(path, os.O_RDWR)
            equal(f"{when}: the client's store into {path}", os.pread(fd, 1, 100000), bytes([20 + n]))
            os.pwrite(fd, b"\x55", 100001)
            os.close(fd)
            self.content[path][100001] = 0x55
            client.says("ok 85", "read", 100001)
        for volume in ("gpu0", "host"):
            self.check_quota(when, self.mount / volume / "all" / "limited")

    @staticmethod
    def check_quota(when, folder):
        for name, size, wanted in (("fits", 1000, None), ("large", 6 * MEGABYTE, "Disk quota exceeded"), ("third", 0, None),
                                   ("fourth", 0, "Disk quota exceeded")):
            try:
                (folder / name).write_bytes(bytes(size))
                got = None
            except OSError as error:
                got = error.strerror
            if name == "large":
                (folder / name).unlink()
            equal(f"{when}: a quota and {folder / name}", got, wanted)
        for name in ("fits", "third"):
            (folder / name).unlink()

    def end(self):
        for _, client in self.clients:
            client.end()
        for mapping in self.mappings.values():
            mapping.close()
        for fd in self.fds.values():
            os.close(fd)
