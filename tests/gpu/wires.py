# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Point 9: the bench, and the limits of its figures beside the raw copies and the null daemons of the same run."""

import json
import pathlib
import re
import time

from harness import MIB, Failure
from pointers import timed

BUDGET = 300 # seconds
IDLE_MEMORY = 16 * MIB # of a GPU, for a mount without files
IDLE_WAKEUPS = 2 # a second
SPREAD = 0.1 # from p10 to p90, of the median

OURS, RING, HOST, TMPFS, RAW = "gpumemfs", "gpumemfs ring", "host/", "tmpfs", "raw copy"
STOCK = ("stock 16", "stock 32", "stock ring")
NULL = ("null FUSE", *STOCK)
# What a bound of rates is called.
NAMES = {STOCK: "stock libfuse", NULL: "the better null daemon", (RAW,): RAW}


class Figures:
    """The bench's results by case, label of the point and target; each has a median and a spread."""

    def __init__(self, found):
        self.by_place = {(case["name"], point["label"], target): result
                         for case in found["cases"] for point in case["points"]
                         for target, result in point["results"].items() if "skipped" not in result}

    def median(self, case, label, target):
        result = self.by_place[case, label, target]
        return result.get("median", result.get("p50"))

    def spread(self, case, label, target):
        result = self.by_place[case, label, target]
        return (result["p90_of_repetitions"] - result["p10_of_repetitions"]) / self.median(case, label, target)

    def has(self, case, label, target=OURS):
        return (case, label, target) in self.by_place

    def best(self, case, label, targets, choose=max):
        """The best target that took part, and its median."""
        return choose(((self.median(case, label, name), name) for name in targets if self.has(case, label, name)))[::-1]


def run_bench(machine, name, arguments):
    report = machine.report.out / f"{name}.json"
    said = machine.run([machine.build / "bench" / "bench", "--json", report, *arguments], timeout=500)
    (machine.report.out / f"{name}.txt").write_text(said.stdout)
    found = json.loads(report.read_text())
    machine.report.check(f"{name}: every case moved the right bytes", found["failures"] == 0, found["device"])
    return Figures(found)


def rates(machine, figures, case, label, share, bound, spread=True):
    """A rate as a share of the lowest of the bounds: a target, or the best of several."""
    unit, scale = ("k/s", 1e3) if case in ("storm", "names", "crowd") else ("GB/s", 1e9)
    ours = figures.median(case, label, OURS)
    others = [figures.best(case, label, names) for names in bound]
    ratio = ours / min(value for _, value in others)
    text = ", ".join(f"{name} {value / scale:.1f}" for name, value in others)
    what = f"{case} {label}: at least {share} of {' and '.join(NAMES[names] for names in bound)}"
    wide = figures.spread(case, label, OURS)
    timed(machine, what, ratio >= share, f"{ours / scale:.1f} {unit}, spread {wide:.0%}; {text}; ratio {ratio:.2f}")
    if spread:
        timed(machine, f"{case} {label}: p10 to p90 within {SPREAD:.0%} of the median", wide <= SPREAD, f"{wide:.1%}")


def latency(machine, figures, label, micros):
    """On the faster transport, each beside the null daemons."""
    name, ours = figures.best("random", label, (OURS, RING), min)
    beside, floor = figures.best("random", label, NULL, min)
    ours, floor = ours * 1e6, floor * 1e6
    timed(machine, f"{label} at random, p50: at most {micros} us more than the better null daemon", ours - floor <= micros,
        f"{name} {ours:.1f} us; {beside} {floor:.1f}; {ours - floor:+.1f} us")


def wakeups(pids):
    """The times that the threads of these processes went to sleep so far."""
    found = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(), re.M)[1])
    return found


def check_idle(machine):
    """What a mount without files costs: memory of the GPU, and wake-ups of the daemon and its keeper."""
    seconds = 10
    before = machine.smi_memory(0, None)["used"] if machine.smi else 0
    with machine.mount("gpus=0") as mount:
        time.sleep(3)
        held = machine.smi_memory(0, mount)["used"] - before if machine.smi else 0
        pids = mount.processes()
        woken = wakeups(pids)
        time.sleep(seconds)
        woken = (wakeups(pids) - woken) / seconds
    timed(machine, f"a mount without files holds at most {IDLE_MEMORY // MIB} MiB of the GPU", held <= IDLE_MEMORY,
        f"{held / MIB:.0f} MiB by nvidia-smi")
    machine.report.check(f"its processes wake up at most {IDLE_WAKEUPS} times a second", woken <= IDLE_WAKEUPS,
        f"{woken:.1f} of {len(pids)} processes")


def check_streams(machine, figures, many):
    rates(machine, figures, "read", f"1 MiB, {many}", 0.85, (NULL, (RAW,)))
    if figures.has("read", "1 MiB, 32 threads"):
        rates(machine, figures, "read", "1 MiB, 32 threads", 0.9, (NULL, (RAW,)))
    rates(machine, figures, "write", f"1 MiB, {many}", 0.88, (NULL, (RAW,)))
    for case in ("read", "write"):
        rates(machine, figures, case, "1 MiB, 1 thread", 1.3, (STOCK,))
        for size in ("64 KiB", "128 KiB"):
            rates(machine, figures, case, f"{size}, {many}", 0.8, (STOCK,))


def check_host(machine, figures, many):
    """Files of host/, which the kernel reads, writes and maps alone."""
    places = [(case, f"{size}, {threads}") for case in ("read", "write") for size in ("4 KiB", "64 KiB", "1 MiB")
              for threads in ("1 thread", many)]
    places += [("mmap", f"mmap: {what}") for what in ("store, msync", "load, first touch", "load, again")]
    for case, label in places:
        ratio = figures.median(case, label, TMPFS) / figures.median(case, label, HOST)
        timed(machine, f"host/, {case} {label}: at most 1.2 times tmpfs's time", ratio <= 1.2, f"{ratio:.2f}")


def point_bench(machine):
    if not (machine.build / "bench" / "bench").exists():
        raise Failure("the bench is not built")
    arguments = ["--backend", "standin", "--quick"] if machine.standin else ["--budget", BUDGET, "--reps", 7]
    figures = run_bench(machine, "bench", ["--svg", machine.report.out / "bench.svg", *arguments])
    many = "16 threads" if figures.has("read", "1 MiB, 16 threads") else "4 threads"
    check_streams(machine, figures, many)
    latency(machine, figures, "read 4 KiB", 4)
    latency(machine, figures, "write 4 KiB", 0.5)
    rates(machine, figures, "storm", f"read 4 KiB, {many}", 0.9, (NULL,))
    for case in ("read", "write"):
        label = f"{case} 1 GiB, {many}"
        name, stock = figures.best("processor", label, STOCK, min)
        ratio = figures.median("processor", label, OURS) / stock
        timed(machine, f"processor time, {label}: at most 1.15 of stock libfuse's", ratio <= 1.15, f"{ratio:.2f} of {name}'s")
    for step in ("create and close", "unlink"):
        rates(machine, figures, "names", step, 0.8, (NULL,), spread=False)
        rates(machine, figures, "crowd", f"{step}, 8 threads", 0.8, (NULL,), spread=False)
    check_host(machine, figures, many)
    check_idle(machine)
