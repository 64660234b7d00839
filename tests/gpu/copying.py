# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Point 11: gpumem cp on one core, beside cp, and on all cores, beside the link and beside copies by threads alone."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

from harness import MIB, rate
from pointers import timed
from wires import RAW, run_bench

ROUNDS = 3
SETTLE = 0.5 # seconds, in which the driver frees the memory of the round before
LINK_SHARE = 0.85 # of the rate of pinned copies by 16 threads, in the same run
FEED_SHARE = 0.85 # of the rate of threads, as many as are best, that read the file and copy without a filesystem
FILES, FILES_SHARE = 16, 0.85
TIMES, DMA_SHARE = 3, 0.85 # for a file so many times as large: the share of the rate at which the GPU reads such memory
WRITE = 4 * MIB


def seconds_of(machine, argv, target):
    """The shortest of some rounds, each into a new file."""
    times = []
    for _ in range(ROUNDS):
        if target.is_dir():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        time.sleep(SETTLE)
        start = time.monotonic()
        machine.run(argv)
        times.append(time.monotonic() - start)
    return min(times)


def link_rates(machine):
    """Bytes per second of pinned copies into the GPU and out of it."""
    arguments = ["--backend", "standin", "--quick"] if machine.standin else ["--budget", "40", "--reps", "2"]
    figures = run_bench(machine, "link", ["--only", "read,write", *arguments])
    return [max(figures.median(case, label, target) for case, label, target in figures.by_place
                if (case, target) == (wanted, RAW)) for wanted in ("write", "read")]


def feed_seconds(machine, source, *how):
    """Without a filesystem; memory and streams are allocated before: see feed.c."""
    times = [float(machine.run([machine.build / "gpu" / "feed", source, 0, threads, *how]).stdout)
             for threads in (machine.cpus * 3 // 4 or 1, machine.cpus)]
    return min(times)


def writer_seconds(machine, target):
    """A new file written from memory, by the best number of threads: the limit of the target's filesystem."""
    data, times = os.urandom(WRITE), []
    for threads in (1, 2, machine.cpus):
        target.unlink(missing_ok=True)
        with open(target, "wb", buffering=0) as out, ThreadPoolExecutor(threads) as pool:
            start = time.monotonic()
            list(pool.map(lambda at: os.pwrite(out.fileno(), data, at), range(0, machine.size, WRITE)))
            times.append(time.monotonic() - start)
    target.unlink()
    return min(times)


def larger_seconds(machine, source, gpumem, mount):
    """A large file: the start of a copy counts less."""
    larger, target = machine.scratch / "larger", mount.gpu() / "larger"
    machine.shell('for _ in $(seq "$3"); do cat "$1"; done >"$2"', source, larger, TIMES)
    seconds = seconds_of(machine, [gpumem, "cp", "-q", larger, target], target)
    machine.check_same("gpumem cp of the larger file: the same bytes", target, larger, TIMES * machine.size)
    larger.unlink()
    target.unlink()
    return seconds


def large_files(machine, source, gpumem, mount):
    """FILES files at once, like the parts of a model."""
    folder, target, back = machine.scratch / "parts", mount.gpu() / "parts", machine.scratch / "back"
    folder.mkdir()
    machine.run(["split", "-n", FILES, source, folder / "part-"])
    seconds = [seconds_of(machine, [gpumem, "cp", "-q", "-r", *way], way[1]) for way in ((folder, target), (target, back))]
    same = machine.run(["diff", "-r", folder, back], check=False).returncode == 0
    machine.report.check(f"gpumem cp -r, {FILES} files into the GPU and out of it: the same bytes", same)
    for left in (folder, target, back):
        shutil.rmtree(left)
    return seconds


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
        one_in = seconds_of(machine, [gpumem, "cp", "-q", source, target], target)
        timed(machine, f"gpumem cp into the GPU, all cores: at least {LINK_SHARE} of the link", size / one_in >= LINK_SHARE * into,
            f"{rate(size, one_in)} from start to exit; pinned copies {rate(into, 1)}; ratio {size / one_in / into:.2f}")
        machine.check_same("gpumem cp: the same bytes", target, source, size)
        one_out = seconds_of(machine, [gpumem, "cp", "-q", target, back], back)
        timed(machine, f"gpumem cp out of the GPU, all cores: at least {LINK_SHARE} of the link", size / one_out >= LINK_SHARE * out,
            f"{rate(size, one_out)} from start to exit; pinned copies {rate(out, 1)}; ratio {size / one_out / out:.2f}")
        target.unlink()
        back.unlink()
        writers = writer_seconds(machine, back)
        timed(machine, "gpumem cp out of the GPU, onto tmpfs: not slower than threads that write such a file from memory", one_out <= writers,
            f"{rate(size, one_out)} from start to exit; written from memory {rate(size, writers)}; ratio {writers / one_out:.2f}")
        larger = larger_seconds(machine, source, gpumem, mount)
        under_way = (TIMES - 1) * size / (larger - one_in)
        timed(machine, f"gpumem cp into the GPU, all cores, once it is under way: at least {LINK_SHARE} of the link",
            under_way >= LINK_SHARE * into, f"{rate(under_way, 1)}, which is what {TIMES} times as much takes longer; "
            f"pinned copies {rate(into, 1)}; ratio {under_way / into:.2f}")
        many_in, many_out = large_files(machine, source, gpumem, mount)
        timed(machine, f"gpumem cp -r of {FILES} files into the GPU: at least {FILES_SHARE} of one's rate", one_in / many_in >= FILES_SHARE,
            f"{rate(size, many_in)} from start to exit; one file {rate(size, one_in)}; ratio {one_in / many_in:.2f}")
        timed(machine, f"gpumem cp -r of {FILES} files out of the GPU, onto tmpfs: faster than one", many_out < one_out,
            f"{rate(size, many_out)} from start to exit; one file {rate(size, one_out)}; ratio {one_out / many_out:.2f}")
    bare, dma = feed_seconds(machine, source), feed_seconds(machine, source, "unread")
    timed(machine, f"gpumem cp of {TIMES} times as much into the GPU: at least {DMA_SHARE} of its DMA alone, out of such memory",
        TIMES * dma / larger >= DMA_SHARE, f"{rate(TIMES * size, larger)} from start to exit; DMA alone {rate(size, dma)}; ratio "
        f"{TIMES * dma / larger:.2f}; of pinned copies {TIMES * size / larger / into:.2f}")
    timed(machine, f"gpumem cp into the GPU: at least {FEED_SHARE} of bare threads that read the file and copy it",
        bare / one_in >= FEED_SHARE, f"{rate(size, one_in)} from start to exit; bare {rate(size, bare)}, with memory that is there; "
        f"ratio {bare / one_in:.2f}")
