# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""What recovery=transparent costs: two mounts of one GPU, with it and without it, the same work in both turn by
turn, over the same transport."""

from harness import MIB, Mount
from pointers import timed
from recovering import Recovering

ROUNDS = 15
NAMES_SHARE, DATA_SHARE = 0.80, 0.97  # of the rate without recovery
SEPARATELY = ("create", "stat", "rename", "unlink")


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def rate_text(work, operations):
    if work.endswith("_1M"):
        return f"{operations * MIB / 1e9:.2f} GB/s"
    return f"{operations / 1000:.1f} k/s"


def compare_rates(machine, work, threads, plain, kept):
    """Each round's two measurements are neighbours in time: it is their ratio that counts."""
    share = NAMES_SHARE if work in SEPARATELY else DATA_SHARE
    ratio = median([b / a for a, b in zip(plain, kept)])
    what = f"{work.replace('_', ' ')}, {threads} thread{'s' if threads > 1 else ''}: at least {share:.2f} of recovery=off"
    timed(machine, what, ratio >= share,
          f"{ratio:.3f}, median of {len(kept)} rounds; {rate_text(work, median(kept))}, without {rate_text(work, median(plain))}")


def point_cost(machine):
    options = "gpus=0,io_uring=off"
    rounds = 5 if machine.standin else ROUNDS
    with Mount(machine, options + ",recovery=off") as plain, Recovering(machine, options) as kept:
        for mount in (plain, kept):
            mount.warm()
        said = machine.run([machine.build / "gpu" / "costs", rounds, plain.gpu(), kept.gpu()]).stdout
    found = {}
    for line in said.splitlines():
        work, threads, folder, *rates = line.split()
        found.setdefault((work, int(threads)), {})[int(folder)] = list(map(float, rates))
    machine.report.check("the same work was done in both mounts", len(found) == 16 and all(len(each) == 2 for each in found.values()),
                         f"{len(found)} kinds, {rounds} rounds turn by turn, io_uring=off")
    for (work, threads), rates in found.items():
        compare_rates(machine, work, threads, rates[0], rates[1])
