# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Point 11: gpumem cp beside cp on one core, and beside the link with all of them."""

import os
import time

from harness import compare, rate
from pointers import timed
from wires import RAW, run_bench

ROUNDS = 3
LINK_SHARE = 0.85 # of what pinned copies by 16 threads reach, in the same run


def seconds_of(machine, argv, target):
    """The least of some rounds, each into a new file."""
    times = []
    for _ in range(ROUNDS):
        target.unlink(missing_ok=True)
        start = time.monotonic()
        machine.run(argv)
        times.append(time.monotonic() - start)
    return min(times)


def link_rates(machine):
    """Bytes per second of pinned copies into the GPU and out of it."""
    arguments = ["--backend", "standin", "--quick"] if machine.standin else ["--budget", "12", "--reps", "2"]
    figures = run_bench(machine, "link", ["--only", "read,write", *arguments])
    return [max(figure for (case, _, target), figure in figures.items() if (case, target) == (wanted, RAW))
            for wanted in ("write", "read")]


def point_cp(machine):
    source, size, gpumem = machine.source(), machine.size, machine.build / "gpumem"
    into, out = link_rates(machine)
    core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    back = machine.scratch / "back"
    with machine.mount("gpus=0") as mount:
        mount.warm(0)
        target = mount.gpu() / "copied"
        plain = seconds_of(machine, [*core, "cp", source, target], target)
        ours = seconds_of(machine, [*core, gpumem, "cp", "-q", source, target], target)
        timed(machine, "gpumem cp of one file on one core: not slower than cp", ours <= plain,
            f"{rate(size, ours)}; cp {rate(size, plain)}; ratio {plain / ours:.2f}")
        ours = seconds_of(machine, [gpumem, "cp", "-q", source, target], target)
        timed(machine, f"gpumem cp into the GPU, all cores: at least {LINK_SHARE} of the link", size / ours >= LINK_SHARE * into,
            f"{rate(size, ours)} from start to exit; pinned copies {rate(into, 1)}; ratio {size / ours / into:.2f}")
        differs = compare(target, source, size, machine.cpus)
        machine.report.check("gpumem cp: the same bytes", differs is None, "" if differs is None else f"differs at {differs}")
        ours = seconds_of(machine, [gpumem, "cp", "-q", target, back], back)
        timed(machine, f"gpumem cp out of the GPU, all cores: at least {LINK_SHARE} of the link", size / ours >= LINK_SHARE * out,
            f"{rate(size, ours)} from start to exit; pinned copies {rate(out, 1)}; ratio {size / ours / out:.2f}")
    back.unlink()
