# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Shared by mount tests in Python: paths, checks, the Python module, and the end of a test."""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

sys.dont_write_bytecode = True
from deadline import Deadline  # noqa: E402

BUILD, WORK, BACKEND = Path(os.environ["BUILD"]), Path(os.environ["WORK"]), os.environ["BACKEND"]
GPU0, HOST = Path(os.environ["GPU0"]), Path(os.environ["HOSTDIR"])


def skip(reason):
    print(reason)
    sys.exit(77)


def equal(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, wanted {wanted!r}")


def eventually(what, condition, seconds=10):
    if not Deadline(seconds).until(condition):
        raise AssertionError(f"did not happen: {what}")


def need_plain_preload():
    """A library with a sanitizer goes into no ordinary program."""
    linked = subprocess.run(["ldd", BUILD / "libgpumem-preload.so"], check=True, capture_output=True, text=True).stdout
    if "libasan" in linked or "libtsan" in linked:
        skip("the preload library has a sanitizer")


def with_torch():
    """Executes this script again if another interpreter has torch: the distribution's."""
    for python in (sys.executable, "/usr/bin/python3"):
        found = [python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))"]
        if not subprocess.run(found, capture_output=True, check=False).returncode:
            return python == sys.executable or os.execv(python, [python, *sys.argv])
    return skip("no torch here")


def keeper_socket(mount):
    """The socket of the keeper of root's mount, for upgrades."""
    device = os.stat(mount).st_dev
    name = f"keeper-{os.major(device)}:{os.minor(device)}"
    return next(path / name for path in (Path("/run/gpumemfs"), *Path("/tmp").glob("gpumemfs-0-*")) if (path / name).exists())


def daemon_of(mount):
    """The process of the daemon that serves the mount."""
    params = (Path(mount) / ".gpumem" / "params").read_text().splitlines()
    return int(next(line for line in params if line.startswith("daemon ")).split()[3])


@contextlib.contextmanager
def counter_of_waiting(mount):
    """The kernel's file with the number of requests to the mount that have no answer; None: not here."""
    folder = WORK / "connections"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "fusectl", "none", folder], check=False).returncode:
        yield None
        return
    try:
        yield folder / str(os.minor(os.stat(mount).st_dev)) / "waiting"
    finally:
        subprocess.run(["umount", folder], check=True)


def leases(path):
    return int(os.getxattr(path, "user.gpumem.leases"))


def no_lease_is_left(path):
    """Waits: the daemon sees the end of a process some time after those who waited for the process."""
    eventually(f"no lease of {path} is left", lambda: leases(path) == 0, 60)


def cat(path):
    return subprocess.run(["cat", path], check=True, capture_output=True).stdout


def with_libraries():
    """Executes this script again if the loader needs LD_LIBRARY_PATH to find the stand-in drivers."""
    wanted = os.environ["DAEMON_LIBRARY_PATH"]
    if wanted and os.environ.get("LD_LIBRARY_PATH", "") != wanted:
        os.environ["LD_LIBRARY_PATH"] = wanted
        os.execv(sys.executable, [sys.executable, *sys.argv])


def module():
    """Imports the Python module of this tree, or of a bundle, with the library of this build."""
    root = Path(__file__).resolve().parent.parent.parent
    package = root / "client" / "python"
    if not (package / "gpumem").is_dir():
        skip("the Python module is not here")
    # In a sanitizer's build the library needs a runtime that Python does not have.
    library = next((p for p in (BUILD / "libgpumem.so.0", BUILD / "lib" / "libgpumem.so.0") if p.exists()), None)
    if library is None:
        raise AssertionError(f"no libgpumem.so.0 in {BUILD}")
    if BUILD.name in ("asan", "tsan"):
        skip("python3 cannot load a library with a sanitizer")
    os.environ["GPUMEM_LIBRARY"] = str(library)
    sys.path.insert(0, str(package))
    with_libraries()
    import gpumem
    return gpumem


def examples():
    """The folder of the examples; sets the environment in which a user would run them. Call module() before."""
    folder = Path(__file__).resolve().parent.parent.parent / "scripts" / "examples"
    if not folder.is_dir():
        skip("the examples are not here")
    os.environ["PYTHONPATH"] = ":".join(filter(None, (sys.path[0], os.environ.get("PYTHONPATH"))))
    os.environ["PYTHONDONTWRITEBYTECODE"], os.environ["PATH"] = "1", f"{BUILD}:{os.environ['PATH']}"
    sys.path.insert(1, str(folder))
    return folder


def example(program, *words, status=0):
    """Runs an example to its end, and returns its output."""
    done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True)
    equal(f"status of {program.name} ({done.stdout}{done.stderr})", done.returncode, status)
    return done.stdout


def run(test):
    faulthandler.register(signal.SIGTERM, chain=True)  # the runner's deadline: says where the test waits
    try:
        test()
    except Exception:
        traceback.print_exc()
        sys.exit(1)
