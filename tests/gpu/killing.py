# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Daemons killed again and again under programs that use the mount: no file is lost, no program sees an error, and the
GPU's used memory is the same afterwards. Measures how long the programs wait, and the parts of that time."""

import os
import random
import re
import signal
import time

from harness import MIB, Failure, median
from pointers import comes_back, memory, timed
from recovering import LOADS_NEED, Loads, Recovering, children, differences, knows, make_kept, snapshot

KILLS, STANDBY_KILLS = 50, 20  # for each kind of cache; with a standby daemon
AFTER = 0.010, 0.500  # seconds after a daemon answers
IN_RESTORE = 0.25  # of the kills also kill the next daemon before it answers
START_SECONDS = 30
REPLACED = re.compile(r"a daemon was replaced[^:]*: (.*) ms; ", re.M)
GOES_ON = re.compile(r"daemon (\d+) goes on, (-?\d+) ms after the end of the previous daemon")


class Killer:
    """Ends daemons of a mount by SIGKILL, and waits for the next daemon."""

    def __init__(self, mount, loads):
        self.mount, self.loads = mount, loads
        self.random = random.Random(os.environ.get("GPUMEM_SEED", "20261122"))
        self.killed, self.restoring, self.answers = [], [], []

    def answered(self):
        """The process that answers, as soon as a daemon that was not killed answers."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            _, pid, _ = self.mount.serving()
            if pid not in self.killed:
                return pid
        raise Failure(f"no other daemon answers {START_SECONDS} s after kill {len(self.killed)}")

    def kill(self, pid):
        self.loads.tell()
        os.kill(pid, signal.SIGKILL)
        self.killed.append(pid)

    def kill_next(self, keeper):
        """The daemon that is starting, at any point of its start."""
        deadline = time.monotonic() + START_SECONDS
        while not (others := [pid for pid in children(keeper) if pid not in self.killed]):
            if time.monotonic() > deadline:
                raise Failure(f"no other daemon is started {START_SECONDS} s after kill {len(self.killed)}")
            time.sleep(0.0005)
        time.sleep(self.random.uniform(0, 0.9) * (median(self.answers) if self.answers else 0.02))
        self.kill(others[0])
        self.restoring.append(others[0])

    def kill_many(self, number):
        self.answered()
        while len(self.killed) < number:
            _, pid, keeper = self.mount.serving()
            time.sleep(self.random.uniform(*AFTER))
            self.loads.check_alive()
            start = time.monotonic()
            self.kill(pid)
            if self.random.random() < IN_RESTORE and len(self.killed) < number:
                self.kill_next(keeper)
                self.answered()
            else:
                self.answered()
                self.answers.append(time.monotonic() - start)


def spread(numbers, unit="ms"):
    return f"p50 {median(numbers):.0f} {unit}, max {max(numbers):.0f} {unit}" if numbers else "none"


def tell_parts(machine, label, log, restarts):
    """The parts of a start that each daemon logged, in ms: the median of each part."""
    what, parts = f"{label}: each daemon says where the time of its start went", {}
    lines = REPLACED.findall(log)
    if not lines:
        machine.report.absent(what, "this gpumemfs says nothing of it")
        return
    for line in lines:
        for part in line.split(", "):
            name, _, ms = part.rpartition(" ")
            parts.setdefault(name, []).append(float(ms))
    machine.report.check(what, len(lines) >= restarts, f"{len(lines)} of them; medians in ms: " +
                         ", ".join(f"{name} {median(ms):.1f}" for name, ms in parts.items()))


def tell_time(machine, mount, label, killer, loads, number):
    """How long each program waited, and the keeper's log lines."""
    report, log = machine.report, mount.log_text()
    goes_on = {int(pid): int(ms) for pid, ms in GOES_ON.findall(log)}
    early = [pid for pid in killer.restoring if pid not in goes_on]
    report.check(f"{label}: daemons were killed before they had restored the files", bool(early),
                 f"{len(early)} of {number} kills")
    pauses = loads.pauses()
    report.check(f"{label}: all programs went on after each kill", len(pauses) == len(loads.programs),
                 "; ".join(f"longest operation of {name} after a kill: p50 {p50:.0f} ms, max {most:.0f} ms"
                           for name, (p50, _, most) in pauses.items()))
    report.note(f"{label}: kill to answer of another daemon (not of those killed while restoring): "
                f"{spread([seconds * 1000 for seconds in killer.answers])}; "
                f"by the keeper, end of one daemon to the next one serving: {spread(list(goes_on.values()))}")
    tell_parts(machine, label, log, len(killer.answers))
    return pauses.get("prog_recovery", (0, 0, 0))[0]


def kills(machine, label, options, number):
    """One mount with this number of kills: the p50 of the pauses, in ms."""
    before_mount = machine.smi_memory(0, None)["used"] if machine.smi else None
    with Recovering(machine, f"gpus=0,{LOADS_NEED},{options}") as mount:
        mount.warm()
        kept = mount.gpu() / "kept", mount.path / "host" / "kept"
        make_kept(machine, mount)
        files, used = snapshot(*kept), memory(machine, mount)
        with Loads(machine, mount, label) as loads:
            killer = Killer(mount, loads)
            killer.kill_many(number)
        pause = tell_time(machine, mount, label, killer, loads, number)
        lost = differences(files, snapshot(*kept))
        machine.report.check(f"{label}: the files that were there before have the same names, attributes and bytes",
                             lost is None, lost or f"{len(files)} names")
        mount.warm()
        comes_back(machine, mount, f"{label}, after {number} kills", used)
    if machine.smi:
        now = {}
        ok = machine.settles(lambda: now.update(machine.smi_memory(0, None)) or abs(now["used"] - before_mount) <= MIB)
        machine.report.check(f"{label}: unmounted, the GPU's used memory is what it was before the mount", ok,
                             f"{before_mount // MIB} MiB before, {now['used'] // MIB} after")
    else:
        machine.report.absent(f"{label}: unmounted, the GPU's used memory is what it was before the mount", "no nvidia-smi")
    return pause


def point_kills(machine):
    number = int(os.environ.get("GPUMEM_KILLS", KILLS))
    cold = kills(machine, "cache=none", "cache=none", number)
    kills(machine, "cache=auto", "cache=auto", number)
    what = "a daemon that stands by makes the pauses shorter"
    if not knows(machine, "standby"):
        machine.report.absent(what, "this gpumemfs has no option standby")
        return
    warm = kills(machine, "standby=on", "standby=on", STANDBY_KILLS)
    timed(machine, what, warm < cold, f"p50 {warm:.0f} ms, without {cold:.0f} ms")
