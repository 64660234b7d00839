# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Point 9: the bench, and the limits of its figures beside the raw copies and the null daemon of the same run."""

import json
import time

from harness import MIB, Failure
from pointers import timed

BUDGET = 110 # seconds
IDLE_MEMORY = 16 * MIB # of a GPU, for a mount without files

NULL, OURS, HOST, TMPFS, RAW = "null FUSE", "gpumemfs", "host/", "tmpfs", "raw copy"


def run_bench(machine, name, arguments):
    """The bench's figures: medians by case, label of the point and target."""
    report = machine.report.out / f"{name}.json"
    said = machine.run([machine.build / "bench" / "bench", "--json", report, *arguments], timeout=240)
    (machine.report.out / f"{name}.txt").write_text(said.stdout)
    found = json.loads(report.read_text())
    machine.report.check(f"{name}: every case moved the right bytes", found["failures"] == 0, found["device"])
    return {(case["name"], point["label"], target): result.get("median", result.get("p50"))
            for case in found["cases"] for point in case["points"]
            for target, result in point["results"].items() if "skipped" not in result}


def at_least(machine, figures, what, case, label, share, *beside):
    """The figure of gpumemfs at a point, as a share of the lowest figure of the other targets."""
    unit, scale = ("GB/s", 1e9) if case in ("read", "write", "copy") else ("k/s", 1e3)
    ours, others = figures[case, label, OURS], {name: figures[case, label, name] for name in beside}
    ratio = ours / min(others.values())
    text = ", ".join(f"{name} {value / scale:.1f}" for name, value in others.items())
    timed(machine, f"{what}: at least {share} of {' and '.join(beside)}", ratio >= share,
        f"{ours / scale:.1f} {unit}; {text}; ratio {ratio:.2f}")


def at_most_later(machine, figures, what, label, micros):
    ours, floor = (figures["random", label, name] * 1e6 for name in (OURS, NULL))
    timed(machine, f"{what}: at most {micros} us more than {NULL}", ours - floor <= micros,
        f"{ours:.1f} us; {NULL} {floor:.1f}; {ours - floor:+.1f} us")


def check_idle(machine):
    """The GPU memory that a mount without files uses."""
    before = machine.smi_memory(0, None)["used"]
    with machine.mount("gpus=0") as mount:
        time.sleep(1)
        held = machine.smi_memory(0, mount)["used"] - before
    timed(machine, f"a mount without files holds at most {IDLE_MEMORY // MIB} MiB of the GPU", held <= IDLE_MEMORY,
        f"{held / MIB:.0f} MiB by nvidia-smi")


def point_bench(machine):
    if not (machine.build / "bench" / "bench").exists():
        raise Failure("the bench is not built")
    arguments = ["--backend", "standin", "--quick"] if machine.standin else ["--budget", BUDGET, "--reps", 5]
    figures = run_bench(machine, "bench", ["--svg", machine.report.out / "bench.svg", *arguments])
    many = "16 threads" if ("read", "1 MiB, 16 threads", OURS) in figures else "4 threads"
    for case in ("write", "read"):
        at_least(machine, figures, f"{case} 1 MiB, {many}", case, f"1 MiB, {many}", 0.85, RAW, NULL)
        at_least(machine, figures, f"{case} 1 MiB, 1 thread", case, "1 MiB, 1 thread", 0.8, NULL)
    at_most_later(machine, figures, "4 KiB random read, p50", "read 4 KiB", 6)
    at_most_later(machine, figures, "4 KiB random write, p50", "write 4 KiB", 1.5)
    at_least(machine, figures, f"4 KiB random reads, {many}", "storm", f"read 4 KiB, {many}", 0.6, NULL)
    for step in ("create and close", "unlink"):
        at_least(machine, figures, f"{step}, 1 thread", "names", step, 0.8, NULL)
        at_least(machine, figures, f"{step}, 8 threads in 8 directories", "crowd", f"{step}, 8 threads", 0.8, NULL)
    host, tmpfs = (figures["random", "read 4 KiB", name] * 1e6 for name in (HOST, TMPFS))
    timed(machine, "host/ file, 4 KiB pread: at most 1.5 times tmpfs", host <= 1.5 * tmpfs,
        f"{host:.2f} us; tmpfs {tmpfs:.2f}; ratio {host / tmpfs:.2f}")
    if not machine.standin:
        check_idle(machine)
