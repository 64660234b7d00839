# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The programs of an earlier commit, for tests of upgrades: the daemon, and client_tool with its library. They are built
once, below the build folder, if the commit is in the history of this checkout."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from python_case import BUILD, skip

# The last commit before version 3 of the journal and version 4 of the memory of leases.
COMMIT = "96f4873ae35ae6b55de7dc8b49ebdbbcd1a60a8c"
ROOT = Path(__file__).resolve().parent.parent.parent
# Variables of the make that runs this test, which are not for the earlier Makefile.
OF_MAKE = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "BUILD", "SAN", "CC", "WERROR", "LD_LIBRARY_PATH")


def git(*words, **more):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False, **more)


def unpack(folder):
    archive = git("archive", COMMIT)
    if archive.returncode:
        raise AssertionError(f"git archive: {archive.stderr.decode()}")
    shutil.rmtree(folder, ignore_errors=True)
    # The private libfuse of this build, if the distribution's is too old.
    (folder / "build" / "deps").mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    fuse = BUILD / "deps" / "fuse"
    if fuse.exists():
        (folder / "build" / "deps" / "fuse").symlink_to(fuse.resolve())


def make(folder):
    environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    done = subprocess.run(["make", f"-j{os.cpu_count()}", "CFLAGS=-O0", "build/gpumemfs", "build/mount/client_tool"],
                          cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"the earlier commit {COMMIT} does not build:\n{done.stdout[-3000:]}")


def earlier_build():
    """The folder with gpumemfs and mount/client_tool of the earlier commit; skips without its history."""
    if not shutil.which("git") or git("cat-file", "-e", COMMIT + "^{commit}").returncode:
        skip(f"the history of this checkout does not have the commit {COMMIT[:12]}")
    folder = BUILD / "earlier" / COMMIT[:12]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            unpack(folder / "source")
            make(folder / "source")
            (folder / "built").touch()
    return folder / "source" / "build"
