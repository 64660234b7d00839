# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The rates of gpu0/ while another program keeps the GPU busy, beside those of an idle GPU before and after."""

import contextlib
import os
import subprocess
import sys

from harness import Failure
from wires import OURS, run_bench

PYTHON = os.environ.get("GPUMEM_PYTHON") or sys.executable
RATE_BAR, COPY_BAR, P99_BAR = 0.9, 0.5, 2.0
BUDGET = 20  # seconds of a bench

BEGIN = """
import torch
def step():
    for _ in range(10):
        work()
    torch.cuda.synchronize()
"""
END = """
step()
print("busy", flush=True)
while True:
    step()
"""
LOADS = {
    "matrix products": """
a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
c = torch.empty_like(a)
def work():
    torch.matmul(a, b, out=c)
""",
    "short kernels": """
a = torch.zeros(1024, device="cuda")
def work():
    for _ in range(100):
        a.add_(1)
""",
    "uploads": """
a, b = torch.empty(256 << 20, dtype=torch.uint8).pin_memory(), torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
def work():
    b.copy_(a, non_blocking=True)
""",
}


@contextlib.contextmanager
def busy(machine, load):
    """A program that keeps the GPU at work until the block ends."""
    with subprocess.Popen([PYTHON, "-c", BEGIN + load + END], env=machine.env, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE) as process:
        try:
            if process.stdout.readline() != "busy\n":
                raise Failure("the program that keeps the GPU busy did not start")
            yield
        finally:
            process.kill()


class State:
    """What the bench measures while the GPU is in one state."""

    def __init__(self, machine, name, many):
        arguments = ["--backend", "standin", "--quick"] if machine.standin else ["--budget", BUDGET, "--reps", 7]
        for label in (many, "read 4 KiB", "inside a GPU"):
            arguments += ["--point", label]
        figures = run_bench(machine, f"busy, {name}", ["--only", "read,write,random,copy", *arguments])
        self.write, self.read = (figures.median(case, many, OURS) for case in ("write", "read"))
        self.copy = figures.median("copy", "inside a GPU", OURS)
        self.p99 = figures.by_place["random", "read 4 KiB", OURS]["p99"]

    def __str__(self):
        return (f"write {self.write / 1e9:.1f}, read {self.read / 1e9:.1f} GB/s, copies inside {self.copy / 1e9:.0f} GB/s, "
                f"4 KiB read p99 {self.p99 * 1e6:.0f} us")


def compare(report, name, state, idle):
    """The rows of one load."""
    for what, share, bar in (("write", state.write / sum(one.write for one in idle) * 2, RATE_BAR),
                             ("read", state.read / sum(one.read for one in idle) * 2, RATE_BAR),
                             ("copies inside the GPU", state.copy / sum(one.copy for one in idle) * 2, COPY_BAR)):
        report.check(f"beside {name}, {what}: at least {bar} of an idle GPU's", share >= bar, f"{share:.2f}")
    times = state.p99 / sum(one.p99 for one in idle) * 2
    report.check(f"beside {name}, 4 KiB read, p99: at most {P99_BAR} times an idle GPU's", times <= P99_BAR, f"{times:.2f}")


def point_busy(machine):
    """Entry."""
    report = machine.report
    if machine.run([PYTHON, "-c", "import torch; torch.zeros(1, device='cuda')"], check=False).returncode:
        report.absent("rates beside a busy GPU", f"{PYTHON} has no torch with this GPU")
        return
    many = f"1 MiB, {16 if machine.cpus >= 16 else 4} threads"
    states = {"idle": State(machine, "idle", many)}
    for name, load in LOADS.items():
        with busy(machine, load):
            states[name] = State(machine, name, many)
    states["idle again"] = State(machine, "idle again", many)
    for name, state in states.items():
        report.note(f"{name}: {state}")
    for name in LOADS:
        compare(report, name, states[name], (states["idle"], states["idle again"]))
