# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Shared by the points of recovery: a mount whose daemons may die, programs that use the mount meanwhile, and the state
of all files of a folder."""

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from harness import MIB, Failure, Mount

SERVING = re.compile(r"^daemon (\d+) process (\d+) keeper (\d+)$", re.M)
END_SECONDS = 60  # for a load to end after its input has ended
SILENT_SECONDS = 30  # without an answer: then the mount counts as hung
HERE = Path(__file__).resolve().parent
MOUNT_TESTS = HERE.parent / "mount"
LOADS_NEED = "spill=host:1G"  # prog_recovery moves its files out of the GPU and back


def knows(machine, option):
    """Whether this gpumemfs has an option, by its --help."""
    return bool(re.search(rf"^  {option}=", machine.run([machine.build / "gpumemfs", "--help"]).stdout, re.M))


class Recovering(Mount):
    """A mount of two processes: the harness starts the keeper, and the keeper the daemons."""

    def __init__(self, machine, options="", env=None):
        self.keeper_killed = False
        super().__init__(machine, ",".join(filter(None, ["recovery=transparent", options])), env)

    def processes(self):
        found, path = [], os.fsencode(self.path)
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
                if path in words and b"gpumemfs" in words[0] and "\nState:\tZ" not in (entry / "status").read_text():
                    found.append(int(entry.name))
        return found

    def kill_processes(self):
        """Stops both processes first: of keeper and daemon, each starts the other again if only one is killed."""
        for how in (signal.SIGSTOP, signal.SIGSTOP, signal.SIGKILL):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
        super().kill_processes()

    def wait_end(self, seconds):
        deadline = time.monotonic() + seconds
        while self.processes():
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("gpumemfs", seconds)
            time.sleep(0.01)
        status = self.process.wait(seconds)
        return 0 if self.keeper_killed else status

    def serving(self):
        """The daemon that answers: its generation, its process, its keeper's process. Waits while no daemon answers. Ends a
        mount that does not answer for SILENT_SECONDS, so that waiting programs go on."""
        patience = threading.Timer(SILENT_SECONDS, self.kill_processes)
        patience.daemon = True
        patience.start()
        start = time.monotonic()
        try:
            found = SERVING.search((self.path / ".gpumem" / "params").read_text())
        except OSError as error:
            silent = time.monotonic() - start >= SILENT_SECONDS
            raise Failure(f"no daemon answers for {SILENT_SECONDS} s" if silent else str(error)) from None
        finally:
            patience.cancel()
        if not found:
            raise Failure("the mount has no keeper by .gpumem/params")
        return tuple(map(int, found.groups()))


def children(pid):
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


# --- programs that use the mount

class Load:
    """A program that works until its input ends."""

    def __init__(self, machine, name, argv, env=None):
        self.machine, self.name, self.told = machine, name, env is not None
        self.output = machine.scratch / f"load-{name.replace(' ', '-')}.out"
        machine.report.log("+ (load) " + " ".join(map(str, argv)))
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(list(map(str, argv)), env=dict(machine.env, **(env or {})),
                                            stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True)

    def tell(self):
        """Announces to the program, which measures pauses, that a daemon is about to die."""
        with contextlib.suppress(BrokenPipeError):
            if self.told:
                os.write(self.process.stdin.fileno(), b"k")

    def ask_to_end(self):
        self.process.stdin.close()

    def finish(self, deadline):
        """Whether the program found no error, and its last line of output."""
        try:
            status = self.process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            status = None
            self.kill()
        said = self.output.read_text(errors="replace").strip()
        self.machine.report.log(said)
        last = said.splitlines()[-1:] if status == 0 else said.splitlines()[-4:]
        return status == 0, " / ".join((["does not end"] if status is None else []) + last)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def copied_file(machine):
    path = machine.scratch / "copied"
    if not path.exists():
        path.write_bytes(os.urandom((4 if machine.standin else 32) * MIB + 777))
    return path


def copied_tree(machine):
    """Files of many sizes in some folders, and a link to each folder."""
    root = machine.scratch / "tree"
    for number in range(0 if root.exists() else 60):
        folder = root / f"folder{number % 6}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}").write_bytes(os.urandom(number * number * 50))
        if number % 6 == 0:
            (root / f"link{number}").symlink_to(f"folder{number % 6}/file{number}")
    return root


def program(machine, mount, name):
    """A program of tests/mount to which kills are announced."""
    env = {"GPU0": str(mount.gpu()), "HOSTDIR": str(mount.path / "host"), "MNT": str(mount.path), "TEST": name,
           "BACKEND": "standin" if machine.standin else "cuda", "GPUMEM_KILLS_TOLD": "1", "GPU1": "",
           "DAEMON_LIBRARY_PATH": machine.env.get("LD_LIBRARY_PATH", "")}
    return Load(machine, name, [machine.build / "mount" / name], env)


class Loads:
    """All programs at once; their results become rows when they end. With a page cache, read(2) does not show the stores of
    a sharer at once, so the program that expects this is left out."""

    def __init__(self, machine, mount, label):
        self.machine, self.mount, self.label, self.running = machine, mount, label, []
        self.programs = ["prog_recovery"] + ["prog_client_recovery"] * (mount.params()["cache"] == "none")

    def __enter__(self):
        machine, folder = self.machine, self.mount.gpu() / "load"
        folder.mkdir()
        script, source, tree = HERE / "loads.py", copied_file(machine), copied_tree(machine)
        try:
            self.running += [program(machine, self.mount, name) for name in self.programs]
            sharer = [machine.build / "gpu" / "sharers", "again", folder / "shared", (2 if machine.standin else 16) * MIB, 7]
            self.running.append(Load(machine, "sharers again", sharer))
            here = {"sqlite": importlib.util.find_spec("_sqlite3"), "fio": shutil.which("fio")}
            for kind in ("dd", "cp", *(kind for kind in here if here[kind])):
                words = [sys.executable, script, kind, folder / kind, tree if kind == "cp" else source]
                self.running.append(Load(machine, kind, words))
        except BaseException:
            self.kill()
            raise
        for kind in (kind for kind in here if not here[kind]):
            machine.report.absent(f"{self.label}: {kind}: no error, no wrong byte", f"{kind} is not here")
        return self

    def __exit__(self, *failure):
        for load in self.running:
            load.ask_to_end()
        deadline = time.monotonic() + END_SECONDS
        self.found = {load.name: load.finish(deadline) for load in self.running}
        for name, (right, said) in self.found.items():
            self.machine.report.check(f"{self.label}: {name}: no error, no wrong byte", right, said)
        if not failure[0]:
            self.clean()

    def clean(self):
        """Uses the mount as a user would: an error here counts as the mount's."""
        for folder in ["load", *(p.name for p in self.mount.gpu().glob("prog_*"))]:
            shutil.rmtree(self.mount.gpu() / folder)

    def kill(self):
        for load in self.running:
            load.kill()

    def tell(self):
        for load in self.running:
            load.tell()

    def check_alive(self):
        """Each program runs until its input ends, or until it finds an error."""
        for load in self.running:
            if load.process.poll() is not None:
                raise Failure(f"{load.name} has ended: " + load.output.read_text(errors="replace").strip()[-300:])

    def pauses(self):
        """p50 and max, in ms, of the longest operation after each kill, as the loads counted them."""
        found = {}
        for name, (_, said) in self.found.items():
            if line := re.search(r"p50 ([\d.]+) ms, p99 ([\d.]+) ms, max ([\d.]+) ms", self.output_of(name)):
                found[name] = tuple(map(float, line.groups()))
        return found

    def output_of(self, name):
        return next(load for load in self.running if load.name == name).output.read_text(errors="replace")


# --- files that must not change

def make_kept(machine, mount):
    """Files of all kinds, which no program changes afterwards."""
    for top in (mount.gpu() / "kept", mount.path / "host" / "kept"):
        for number in range(50):
            folder = top / f"folder{number % 5}"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"file{number}"
            path.write_bytes(os.urandom(1 + number * number * (100 if machine.standin else 2000)))
            os.setxattr(path, "user.number", str(number).encode())
            os.chmod(path, 0o600 + number)
            os.utime(path, ns=(number * 10**9 + 1, number * 10**9 + 7))
        os.link(top / "folder1" / "file1", top / "hard")
        (top / "symbolic").symlink_to("folder1/file1")
        with open(top / "sparse", "wb") as file:
            os.pwrite(file.fileno(), b"in the middle", 3 * MIB + 17)
            file.truncate(9 * MIB)
    large = mount.gpu() / "kept" / "large"
    size = min(machine.size // 16, 64 * MIB if machine.standin else machine.size)
    machine.run(["dd", f"if={machine.source()}", f"of={large}", "bs=4M", f"count={size // (4 * MIB)}", "status=none"])


def described(path):
    """The state of a file, without its bytes and the properties of its mount: must be equal on another mount."""
    info = path.lstat()
    attributes = {} if path.is_symlink() else {name: os.getxattr(path, name) for name in sorted(os.listxattr(path))}
    return (info.st_mode, info.st_nlink, info.st_uid, info.st_gid, info.st_size, info.st_mtime_ns, attributes,
            os.readlink(path) if path.is_symlink() else "")


def sum_of(path):
    if path.is_symlink() or not path.is_file():
        return ""
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def snapshot(*folders):
    """For each path: the fields of stat(2) without the access time, the attributes, and the sum of the bytes."""
    found = {}
    for folder in folders:
        for path in [folder, *folder.rglob("*")]:
            info = path.lstat()
            found[str(path)] = (described(path), info.st_ino, info.st_blocks, info.st_ctime_ns, sum_of(path))
    return found


def differences(before, after):
    """The lost, new and different files, in one line; None if there are none."""
    found = [f"{path}: {'lost' if path not in after else 'not there before' if path not in before else 'another'}"
             for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]
    return " / ".join([f"{len(found)} differ", *found[:4]]) if found else None
