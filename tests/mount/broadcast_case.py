# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Shared by the tests of gpumem.broadcast: four mounts, one for each rank, and the programs that start the ranks."""

import contextlib
import os
import random
import subprocess
import sys
from pathlib import Path

from python_case import BUILD, WORK, cat, equal, eventually, module, skip

HERE = Path(__file__).resolve().parent
RANKS = 4
PIECE = 1 << 20


def python_with(*modules):
    """Goes on in an interpreter that has the modules: this interpreter, or the distribution's."""
    code = f"import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, {modules!r})))"
    for python in (sys.executable, "/usr/bin/python3"):
        if not subprocess.run([python, "-c", code], capture_output=True, check=False).returncode:
            if python != sys.executable:
                os.execv(python, [python, *sys.argv])
            return
    skip(f"no Python with {', '.join(modules)} here")


def mount_of(rank):
    return WORK / f"mnt{rank}"


def _is_ready(mount):
    if not os.path.ismount(mount) or not (mount / "gpu0").is_dir():
        return False
    return b"\nsharing off: the mount has just been made" not in cat(mount / ".gpumem" / "params")


@contextlib.contextmanager
def mounts():
    """A daemon for each rank, with a folder in gpu0/ and in host/."""
    module()
    daemons = []
    with open(os.environ["LOG"], "ab") as log:
        for rank in range(RANKS):
            mount_of(rank).mkdir()
            argv = [BUILD / "gpumemfs", "-f", mount_of(rank), "-o", os.environ["OPTIONS"]]
            environment = {**os.environ, "LD_LIBRARY_PATH": os.environ["DAEMON_LIBRARY_PATH"]}
            daemons.append(subprocess.Popen(argv, env=environment, stdout=log, stderr=log))
    try:
        for rank in range(RANKS):
            eventually(f"mount {rank}", lambda rank=rank: _is_ready(mount_of(rank)), 30)
        yield
    finally:
        for rank, daemon in enumerate(daemons):
            subprocess.run(["umount", mount_of(rank)], check=False)
            equal(f"status of daemon {rank}", daemon.wait(), 0)


def environment():
    root = HERE.parent.parent
    return {**os.environ, "PYTHONPATH": str(root / "client" / "python"), "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run_ranks(launcher, *words):
    """The output of the ranks, and the status."""
    done = subprocess.run([*launcher, *map(str, words)], env=environment(), capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, flush=True)
    return done.stdout + done.stderr, done.returncode


def mpirun(*words):
    return run_ranks(("mpirun", "-n", str(RANKS), "--oversubscribe", sys.executable), *words)


def torchrun(restarts, *words):
    """Log options: torch 1.13 with Python 3.11 fails without them."""
    return run_ranks((sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(RANKS),
                      "--max_restarts", str(restarts), "--monitor_interval", "0.2", "--redirects", "1", "--tee", "1",
                      "--log_dir", str(WORK / "torchrun")), *words)


def random_file(path, size, seed=1):
    path.write_bytes(random.Random(seed).randbytes(size))


def same(path, volume):
    """Whether all ranks have the root's file."""
    wanted = cat(mount_of(0) / volume / path)
    for rank in range(1, RANKS):
        equal(f"{path} of rank {rank}", cat(mount_of(rank) / volume / path) == wanted, True)


def partials(volume):
    return [str(path) for rank in range(RANKS) for path in (mount_of(rank) / volume).rglob(".*.gpumem-part")]
