# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""What recovery=transparent costs: two mounts of one GPU, with it and without it, the same work in both turn by
turn, over the same transport, and moved in the same way: each daemon measures for itself from which size on DMA is
faster, and two that found different sizes are not to be compared."""

import os

from harness import MIB, Mount
from pointers import timed
from recovering import Recovering

ROUNDS = 25
NAMES_SHARE, DATA_SHARE = 0.80, 0.97  # of the rate without recovery
NAMES = ("create", "stat", "rename", "unlink")


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def rate_text(work, operations):
    if work.endswith("_1M"):
        return f"{operations * MIB / 1e9:.2f} GB/s"
    return f"{operations / 1000:.1f} k/s"


def compare_rates(machine, work, threads, plain, kept):
    """Each round's two measurements are neighbours in time: it is their ratio that counts."""
    share = NAMES_SHARE if work in NAMES else DATA_SHARE
    ratios = sorted(b / a for a, b in zip(plain, kept))
    ratio = median(ratios)
    what = f"{work.replace('_', ' ')}, {threads} thread{'s' if threads > 1 else ''}: at least {share:.2f} of recovery=off"
    timed(machine, what, ratio >= share,
          f"{ratio:.3f}, median of {len(kept)} rounds (half of them {ratios[len(ratios) // 4]:.2f} to "
          f"{ratios[-1 - len(ratios) // 4]:.2f}); {rate_text(work, median(kept))}, without {rate_text(work, median(plain))}")


def settle(mount):
    mount.warm()
    small = "dma" if mount.params()["gpu0.bar"].startswith("none") else "bar"
    for name, way in (("large", "dma"), ("small", small)):
        (mount.gpu() / name).touch()
        os.setxattr(mount.gpu() / name, "user.gpumem.copy", way.encode())
    return small


def point_cost(machine):
    options = "gpus=0,io_uring=off"
    rounds = 5 if machine.standin else ROUNDS
    with Mount(machine, options + ",recovery=off") as plain, Recovering(machine, options) as kept:
        ways = [settle(mount) for mount in (plain, kept)]
        said = machine.run([machine.build / "gpu" / "costs", rounds, plain.gpu(), kept.gpu()]).stdout
    found = {}
    for line in said.splitlines():
        work, threads, folder, *rates = line.split()
        found.setdefault((work, int(threads)), {})[int(folder)] = list(map(float, rates))
    machine.report.check("the same work was done in both mounts", len(found) == 16 and all(len(each) == 2 for each in found.values())
                         and len(set(ways)) == 1, f"{len(found)} kinds, {rounds} rounds turn by turn; both io_uring=off, "
                         f"1 MiB by dma, 4 KiB by {ways[1]}")
    for (work, threads), rates in found.items():
        compare_rates(machine, work, threads, rates[0], rates[1])
