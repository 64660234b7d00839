#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""loads.py KIND FOLDER SOURCE: works in FOLDER as programs do, round after round, until its input ends, and checks
the bytes that it wrote. Ends with a traceback at the first error or wrong byte, and else prints the number of rounds.
SOURCE is a file to copy for dd and fio, a folder for cp."""

import hashlib
import os
import random
import select
import shutil
import subprocess
import sys
from pathlib import Path

ROWS, CHECKPOINT_ROUNDS = 500, 20


def going_on():
    return not select.select([0], [], [], 0)[0]


def run(*argv):
    result = subprocess.run(list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        raise AssertionError(f"{' '.join(map(str, argv))}: status {result.returncode}: {result.stdout.strip()[-500:]}")


def dd(folder, source):
    """Written by dd in several ways, compared by cmp."""
    target, rounds = folder / "dd", 0
    while going_on():
        form = (("bs=1M", "conv=fsync"), ("bs=64K", "oflag=direct"), ("bs=300K", "conv=fdatasync"))[rounds % 3]
        run("dd", f"if={source}", f"of={target}", "status=none", *form)
        run("cmp", source, target)
        target.unlink()
        rounds += 1
    return rounds


def cp(folder, source):
    """A tree: copied, compared and removed."""
    target, rounds = folder / "tree", 0
    while going_on():
        run("cp", "-r", source, target)
        run("diff", "-r", "--no-dereference", source, target)
        run("rm", "-r", target)
        rounds += 1
    return rounds


def fio(folder, source):
    """fio with its own verification, with O_DIRECT and without."""
    rounds = 0
    while going_on():
        run("fio", "--name=verify", f"--filename={folder}/fio", f"--size={os.stat(source).st_size}", "--bs=4k,64k,16k",
            "--rw=randwrite", f"--direct={rounds % 2}", "--ioengine=psync", "--verify=crc32c", "--verify_fatal=1",
            "--do_verify=1", "--verify_state_save=0", f"--randseed={rounds + 1}")
        rounds += 1
    return rounds


def row_is_right(data, wanted):
    return hashlib.sha256(data).hexdigest() == wanted


def sqlite(folder, _):
    """Transactions in WAL mode: another connection must see all committed rows, meanwhile and at the end."""
    import sqlite3  # not every Python has it
    path, last, rounds = folder / "base.db", 0, 0
    writer, reader = (sqlite3.connect(path, isolation_level=None, timeout=60) for _ in range(2))
    mode = writer.execute("pragma journal_mode=wal").fetchone()[0]
    assert mode == "wal", f"journal_mode is {mode}"
    writer.execute("create table kept (id integer primary key, data blob, sum text)")
    while going_on():
        writer.execute("begin")
        for _ in range(10):
            last += 1
            data = random.randbytes(random.randrange(1, 5000))
            writer.execute("insert into kept values (?, ?, ?)", (last, data, hashlib.sha256(data).hexdigest()))
        writer.execute("delete from kept where id <= ?", (last - ROWS,))
        writer.execute("commit")
        count, newest = reader.execute("select count(*), max(id) from kept").fetchone()
        assert (count, newest) == (min(last, ROWS), last), f"{count} rows up to {newest}, of {last}"
        some = random.randint(last - count + 1, last)
        assert row_is_right(*reader.execute("select data, sum from kept where id = ?", (some,)).fetchone()), f"row {some}"
        rounds += 1
        if rounds % CHECKPOINT_ROUNDS == 0:
            writer.execute("pragma wal_checkpoint(truncate)")
    reader.close()
    writer.close()
    with sqlite3.connect(path) as again:
        assert again.execute("pragma integrity_check").fetchone()[0] == "ok"
        ids = [row[0] for row in again.execute("select id, data, sum from kept order by id") if row_is_right(*row[1:])]
    again.close()
    assert ids == list(range(max(last - ROWS, 0) + 1, last + 1)), f"{len(ids)} rows at the end, of {last}"
    return rounds


def main():
    kind, folder, source = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir()
    print(f"{ {'dd': dd, 'cp': cp, 'fio': fio, 'sqlite': sqlite}[kind](folder, source)} rounds")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
