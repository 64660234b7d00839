# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The cost of recovery=transparent: two mounts of one GPU, with the option and without. Both do the same work in turns,
over the same transport, with copies of the same kind: each daemon measures from which size on DMA is faster, and daemons
that found different sizes cannot be compared. A third mount, also without the option, shows how much two equal mounts
differ."""

import os

from harness import MIB, Mount, median
from pointers import timed
from recovering import Recovering

ROUNDS = 11
NAMES_SHARE, DATA_SHARE = 0.80, 0.97  # of the rate without recovery
NAMES = ("create", "stat", "rename", "unlink")


class Plain(Mount):
    """In a session of its own, like the daemon of a keeper, because the kernel schedules by sessions."""

    own_session = True


def rate_text(work, operations):
    if work.endswith("_1M"):
        return f"{operations * MIB / 1e9:.2f} GB/s"
    return f"{operations / 1000:.1f} k/s"


def ratios(some, others):
    """The ratio of each round's two measurements, which directly follow each other. Sorted."""
    return sorted(b / a for a, b in zip(some, others))


def compare_rates(machine, work, threads, plain, kept, again):
    share = NAMES_SHARE if work in NAMES else DATA_SHARE
    found, equal = ratios(plain, kept), ratios(plain, again)
    ratio, quarter = median(found), len(found) // 4
    what = f"{work.replace('_', ' ')}, {threads} thread{'s' if threads > 1 else ''}: at least {share:.2f} of recovery=off"
    timed(machine, what, ratio >= share,
          f"{ratio:.3f}, median of {len(kept)} rounds (half of them {found[quarter]:.2f} to {found[-1 - quarter]:.2f}; "
          f"recovery=off beside itself {median(equal):.3f}); {rate_text(work, median(kept))}, without "
          f"{rate_text(work, median(plain))}")


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
    off = options + ",recovery=off"
    with Plain(machine, off) as plain, Recovering(machine, options) as kept, Plain(machine, off) as again:
        mounts = plain, kept, again
        ways = [settle(mount) for mount in mounts]
        said = machine.run([machine.build / "gpu" / "costs", rounds, *(mount.gpu() for mount in mounts)]).stdout
    found = {}
    for line in said.splitlines():
        work, threads, folder, *rates = line.split()
        found.setdefault((work, int(threads)), {})[int(folder)] = list(map(float, rates))
    machine.report.check("the same work was done in all three mounts", len(found) == 16 and all(len(each) == 3 for each in found.values())
                         and len(set(ways)) == 1, f"{len(found)} kinds, {rounds} rounds turn by turn; all io_uring=off, "
                         f"1 MiB by dma, 4 KiB by {ways[1]}")
    for (work, threads), rates in found.items():
        compare_rates(machine, work, threads, *(rates[folder] for folder in range(3)))
