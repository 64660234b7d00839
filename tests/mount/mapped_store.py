# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""mapped_store.py FOLDER...: stores through a mapping of a sparse file, and checks that SEEK_DATA, st_blocks and tools
that keep holes see the bytes before the kernel writes the page back."""

import errno
import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MIB = 1 << 20
SIZE, AT, MARK = 16 * MIB, 8 * MIB, b"stored through a mapping"


def check(what, good):
    if not good:
        raise AssertionError(what)


def data_at(fd):
    try:
        return os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        check("errno of SEEK_DATA", error.errno == errno.ENXIO)
        return SIZE


def has_mark(path):
    with open(path, "rb") as file:
        return os.pread(file.fileno(), len(MARK), AT) == MARK


def tools_keep(path):
    with tempfile.TemporaryDirectory() as folder:
        for tool in (["cp", "--sparse=always"], ["cp", "--sparse=auto"]):
            subprocess.run([*tool, path, f"{folder}/copy"], check=True)
            check(f"{path}: {tool} keeps the bytes", has_mark(f"{folder}/copy"))
        subprocess.run(["tar", "-C", path.parent, "-cSf", f"{folder}/tar", path.name], check=True)
        subprocess.run(["tar", "-C", folder, "-xSf", f"{folder}/tar"], check=True)
        check(f"{path}: tar -S keeps the bytes", has_mark(f"{folder}/{path.name}"))


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(SIZE)
    check("no blocks at first", path.stat().st_blocks == 0)


def sees_data(path, fd):
    check(f"{path}: data at {data_at(fd)}", data_at(fd) <= AT)
    check(f"{path}: no hole at the mark", os.lseek(fd, AT, os.SEEK_HOLE) > AT)
    check(f"{path}: a hole in the end", os.lseek(fd, AT, os.SEEK_HOLE) < SIZE)
    if path.parts[-2] != "host":
        check(f"{path}: a hole at the start", data_at(fd) > 0)


def pages_of_a_writer(path, reads_before):
    """A program opens the file, and may fill all pages, before another opens the file, maps it and stores."""
    sparse(path)
    with open(path, "rb") as earlier, mmap.mmap(earlier.fileno(), SIZE, prot=mmap.PROT_READ) as seen:
        check("a hole", not reads_before or seen[AT] == 0)
        if path.parts[-2] != "host":  # where a page that was read takes memory, as on tmpfs
            check("pages that were read are no data", data_at(earlier.fileno()) == SIZE and not path.stat().st_blocks)
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), SIZE) as stores:
            stores[AT:AT + len(MARK)] = MARK
            blocks = path.stat().st_blocks
            for fd in (earlier.fileno(), file.fileno()):
                sees_data(path, fd)
            # An open for no cache writes pages back: the checks after it see less.
            check(f"{path}: blocks", blocks > 0)
            with open(path, "rb") as later:
                sees_data(path, later.fileno())
            tools_keep(path)
        check("data after the end of the mapping", data_at(earlier.fileno()) <= AT)
    check("blocks after the end of the mapping", path.stat().st_blocks > 0)
    path.unlink()


def main():
    for folder in map(Path, sys.argv[1:]):
        for reads_before in (False, True):
            pages_of_a_writer(folder / "mapped", reads_before)


main()
