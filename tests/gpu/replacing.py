# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Daemons and keepers replaced under programs that use the mount: by gpumemfs --upgrade, when the keeper is killed,
and when both are killed and a service manager keeps their descriptors. The manager is a stand-in with the protocol of
sd_notify(3): systemd itself does not run."""

import os
import random
import signal
import sys
import time

from harness import Failure
from killing import spread
from pointers import comes_back, memory
from recovering import LOADS_NEED, MOUNT_TESTS, Loads, Recovering, differences, make_kept, snapshot

sys.path.append(str(MOUNT_TESTS))
from service_manager import ServiceManager  # noqa: E402

UPGRADES, KEEPER_KILLS, BOTH_KILLS = 10, 3, 3
PAUSE = 0.1, 0.4  # seconds before each
WAIT = 30  # for another process


def until(what, condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"not within {WAIT} s: {what}")
        time.sleep(0.002)


def pauses_text(loads):
    return "; ".join(f"longest operation of {name} after each: p50 {p50:.0f} ms, max {most:.0f} ms"
                     for name, (p50, _, most) in loads.pauses().items())


def upgrades(machine, mount):
    """Replaces the daemon by the same program, in another process."""
    took, wrong, chance = [], [], random.Random(1)
    first = mount.serving()
    with Loads(machine, mount, "upgrade") as loads:
        for _ in range(UPGRADES):
            time.sleep(chance.uniform(*PAUSE))
            loads.check_alive()
            loads.tell()
            start = time.monotonic()
            done = machine.run([machine.build / "gpumemfs", "--upgrade", mount.path], check=False)
            took.append((time.monotonic() - start) * 1000)
            if done.returncode or done.stderr:
                wrong.append(f"status {done.returncode}: {done.stderr.strip()}")
    last = mount.serving()
    machine.report.check(f"gpumemfs --upgrade, {UPGRADES} times under load: each is done, by a new process",
                         not wrong and last[0] == first[0] + UPGRADES and last[1] != first[1] and last[2] == first[2],
                         " / ".join(wrong) or f"daemon {first[0]} to {last[0]}; from start to exit {spread(took)}")
    machine.report.check("upgrade: all programs went on", len(loads.pauses()) == len(loads.programs), pauses_text(loads))


def keepers_killed(machine, mount):
    """Kills the keeper, and then the daemon that started another keeper, to show that this keeper starts a daemon."""
    took, chance = [], random.Random(3)
    with Loads(machine, mount, "keeper killed") as loads:
        for _ in range(KEEPER_KILLS):
            time.sleep(chance.uniform(*PAUSE))
            _, serving, keeper = mount.serving()
            loads.check_alive()
            start = time.monotonic()
            mount.keeper_killed = True
            os.kill(keeper, signal.SIGKILL)
            if keeper == mount.process.pid:
                mount.process.wait()
            until("another keeper", lambda k=keeper: mount.serving()[2] not in (0, k))
            took.append((time.monotonic() - start) * 1000)
            same = mount.serving()[1] == serving
            loads.tell()
            os.kill(serving, signal.SIGKILL)
            until("another daemon", lambda s=serving: mount.serving()[1] != s)
            if not same:
                raise Failure("the daemon did not outlive its keeper")
    machine.report.check(f"keeper killed, {KEEPER_KILLS} times: the daemon goes on, and the keeper it starts starts the next daemon",
                         True, f"another keeper after {spread(took)}; {pauses_text(loads)}")


def kill_both(mount, manager, loads):
    """Kills the keeper; then the manager kills the processes that are left."""
    _, serving, _ = mount.serving()
    loads.tell()
    start = time.monotonic()
    mount.process.kill()
    manager.kill_all()
    mount.process.wait()
    with open(mount.log_path, "ab") as log:
        mount.process = manager.start(mount.argv, mount.env, stderr=log, stdout=log)
    until("another daemon", lambda: mount.serving()[1] != serving)
    return (time.monotonic() - start) * 1000


def both_killed(machine):
    manager, chance, took, held = ServiceManager(machine.scratch / "notify"), random.Random(2), [], 0
    with Recovering(machine, f"gpus=0,{LOADS_NEED}", {"NOTIFY_SOCKET": manager.path}) as mount:
        mount.warm()
        kept = mount.gpu() / "kept", mount.path / "host" / "kept"
        make_kept(machine, mount)
        files = snapshot(*kept)
        with Loads(machine, mount, "both killed") as loads:
            for _ in range(BOTH_KILLS):
                time.sleep(chance.uniform(*PAUSE))
                loads.check_alive()
                took.append(kill_both(mount, manager, loads))
                held = max(held, len(manager.store))
        lost = differences(files, snapshot(*kept))
        machine.report.check(f"keeper and daemon killed at once, {BOTH_KILLS} times, beside a stand-in for systemd's store of "
                             "descriptors: the mount goes on with all files", lost is None,
                             lost or f"{len(files)} names; {held} descriptors in the store; answers after {spread(took)}; "
                             f"{pauses_text(loads)}")
    left, wrong = manager.end()
    machine.report.check("unmounted: nothing is left in the store, and all was said as systemd wants it",
                         not left and not wrong, f"{len(left)} left; " + (wrong[0] if wrong else "FDPOLL=0 each time"))


def point_upgrade(machine):
    with Recovering(machine, f"gpus=0,{LOADS_NEED}") as mount:
        mount.warm()
        kept = mount.gpu() / "kept", mount.path / "host" / "kept"
        make_kept(machine, mount)
        files, used = snapshot(*kept), memory(machine, mount)
        upgrades(machine, mount)
        keepers_killed(machine, mount)
        lost = differences(files, snapshot(*kept))
        machine.report.check("upgraded, and its keeper killed: all files have the same names, attributes and bytes",
                             lost is None, lost or f"{len(files)} names")
        mount.warm()
        comes_back(machine, mount, "upgraded, and its keeper killed", used)
    both_killed(machine)
