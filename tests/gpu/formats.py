# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Formats whose libraries read and write at offsets of their own choice: HDF5, zarr, Arrow, sqlite and git, on tmpfs and on
gpu0/ as they are. The figures have no bars: they say which of them belong on gpu0/. The interpreter is GPUMEM_PYTHON's."""

import os
import shutil
import sys

from harness import MIB, median, rounds

ROUNDS = rounds(3)
PYTHON = os.environ.get("GPUMEM_PYTHON") or sys.executable

BEGIN = r"""
import hashlib, sys, time
import numpy
folder, size = sys.argv[1], int(sys.argv[2])
data = numpy.random.default_rng(7).integers(0, 1 << 32, (size // 4096, 1024), dtype=numpy.uint32)
def report(write, read):
    start = time.monotonic()
    write()
    middle = time.monotonic()
    found = read()
    end = time.monotonic()
    print(middle - start, end - middle, hashlib.sha256(numpy.ascontiguousarray(found)).hexdigest())
"""
HDF5 = BEGIN + r"""
import h5py
def write():
    with h5py.File(folder + "/data.h5", "w") as file:
        file.create_dataset("data", data=data, chunks=(256, 1024))
def read():
    with h5py.File(folder + "/data.h5") as file:
        return file["data"][:]
report(write, read)
"""
ZARR = BEGIN + r"""
import zarr
def write():
    zarr.create_array(folder + "/data.zarr", shape=data.shape, dtype=data.dtype, chunks=(256, 1024), compressors=None)[:] = data
def read():
    return zarr.open_array(folder + "/data.zarr", mode="r")[:]
report(write, read)
"""
ARROW = BEGIN + r"""
import pyarrow, pyarrow.feather
def write():
    pyarrow.feather.write_feather(pyarrow.table({"data": data.reshape(-1)}), folder + "/data.arrow", compression="uncompressed")
def read():
    return pyarrow.feather.read_table(folder + "/data.arrow", memory_map=True)["data"].to_numpy()
report(write, read)
"""
PARQUET = BEGIN + r"""
import pyarrow, pyarrow.parquet
def write():
    pyarrow.parquet.write_table(pyarrow.table({"data": data.reshape(-1)}), folder + "/data.parquet", compression="none", use_dictionary=False)
def read():
    return pyarrow.parquet.read_table(folder + "/data.parquet")["data"].to_numpy()
report(write, read)
"""
SQLITE = BEGIN + r"""
import sqlite3
def write():
    with sqlite3.connect(folder + "/data.db") as base:
        base.execute("create table data (row integer primary key, bytes blob)")
        base.executemany("insert into data values (?, ?)", ((row, data[row].tobytes()) for row in range(len(data))))
def read():
    with sqlite3.connect(folder + "/data.db") as base:
        return numpy.frombuffer(b"".join(row[0] for row in base.execute("select bytes from data order by row")), numpy.uint32)
report(write, read)
"""
GIT = BEGIN + r"""
import os, subprocess
def git(*words):
    return subprocess.run(["git", "-C", folder + "/tree", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True,
                          capture_output=True).stdout
def write():
    os.mkdir(folder + "/tree")
    git("init", "-q")
    for row in range(0, len(data), 16):
        with open(f"{folder}/tree/{row}", "wb") as file:
            file.write(data[row:row + 16].tobytes())
    git("add", ".")
    git("commit", "-q", "-m", "all")
def read():
    return numpy.frombuffer(b"".join(git("show", f"HEAD:{row}") for row in range(0, len(data), 512)), numpy.uint32)
report(write, read)
"""
# What the interpreter needs, what the program is, and how many bytes it writes and reads.
FORMATS = {"HDF5, chunks of 1 MiB": ("import h5py", HDF5, 512 * MIB), "zarr, chunks of 1 MiB": ("import zarr", ZARR, 512 * MIB),
           "Arrow, mapped": ("import pyarrow", ARROW, 512 * MIB), "Parquet": ("import pyarrow", PARQUET, 512 * MIB),
           "sqlite, blobs of 4 KiB": ("import sqlite3", SQLITE, 32 * MIB),
           "git, files of 64 KiB": ("import shutil, sys; sys.exit(not shutil.which('git'))", GIT, 32 * MIB)}


def compare(machine, name, program, size, places):
    """Seconds to write and to read in each place, as a row and with the times of tmpfs; and the sums."""
    taken = {place: [] for place in places}
    for _ in range(ROUNDS):
        for place, parent in places.items():
            folder = parent / "format"
            folder.mkdir()
            taken[place].append(machine.run([PYTHON, "-c", program, folder, size]).stdout.split())
            shutil.rmtree(folder)
    sums = {words[2] for some in taken.values() for words in some}
    write, read = ({place: median([float(words[which]) for words in some]) for place, some in taken.items()}
                   for which in (0, 1))
    ratios = write["gpu0"] / write["tmpfs"], read["gpu0"] / read["tmpfs"]
    return max(ratios), name, len(sums) == 1, (
        f"write {write['gpu0']:.2f} s, {ratios[0]:.2f} times tmpfs; read {read['gpu0']:.2f} s, {ratios[1]:.2f} times")


def point_formats(machine):
    """Entry."""
    report = machine.report
    if machine.standin:
        report.absent("formats of files", "needs a GPU")
        return
    rows = []
    with machine.mount("gpus=0") as mount:
        mount.warm()
        for name, (needed, program, size) in FORMATS.items():
            if machine.run([PYTHON, "-c", needed], check=False).returncode:
                report.absent(name, "is not installed")
                continue
            rows.append(compare(machine, name, program, size, {"tmpfs": machine.scratch, "gpu0": mount.gpu()}))
    for _, name, same, figure in sorted(rows, reverse=True):
        report.check(f"{name}: the same bytes from gpu0/ as from tmpfs", same, figure)
