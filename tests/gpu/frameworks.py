# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Files that frameworks map and move to the GPU themselves, with nothing of ours in the program: torch.load(mmap=True),
torch and cupy from a numpy.memmap, jax from a numpy.memmap; from tmpfs, from gpu0/, and from gpu0/ under `gpumem run`.
Each load is in a fresh process that has used the GPU before. The interpreter is GPUMEM_PYTHON's."""

import os
import sys

from harness import MIB, median, rounds

ROUNDS = rounds(5)
PYTHON = os.environ.get("GPUMEM_PYTHON") or sys.executable
# Of the time from tmpfs.
BARS = {"gpu0": 1.1, "gpumem run": 0.5}

# What each framework needs, and how it loads sys.argv[1] to the GPU: the result is a sum that all ways must agree on.
START = r"""
import sys, time
import numpy
path = sys.argv[1]
"""
TORCH = START + r"""
import torch
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
begin = time.monotonic()
"""
TORCH_END = r"""
torch.cuda.synchronize()
print(time.monotonic() - begin, int(there.view(torch.int32).sum(dtype=torch.int64)))
"""
LOADS = {
    "torch.load(mmap=True)": ("torch", "saved", TORCH + r"""
there = torch.load(path, mmap=True)["weights"].to("cuda")
""" + TORCH_END),
    "torch.from_numpy(memmap)": ("torch", "data", TORCH + r"""
import warnings
warnings.simplefilter("ignore")  # the array is not writable
there = torch.from_numpy(numpy.memmap(path, mode="r")).to("cuda")
""" + TORCH_END),
    "cupy.asarray(memmap)": ("cupy", "data", START + r"""
import cupy
cupy.zeros(1)
cupy.cuda.Device().synchronize()
begin = time.monotonic()
there = cupy.asarray(numpy.memmap(path, mode="r"))
cupy.cuda.Device().synchronize()
print(time.monotonic() - begin, int(there.view(cupy.int32).sum(dtype=cupy.int64)))
"""),
    "jax.device_put(memmap)": ("jax", "data", START + r"""
import os
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
jax.device_put(numpy.zeros(1, numpy.uint8)).block_until_ready()
begin = time.monotonic()
there = jax.device_put(numpy.memmap(path, mode="r"))
there.block_until_ready()
seconds = time.monotonic() - begin
print(seconds, int(numpy.asarray(there).view(numpy.int32).sum(dtype=numpy.int64)))
"""),
}
SAVE = r"""
import sys, numpy, torch
torch.save({"weights": torch.from_numpy(numpy.memmap(sys.argv[1], mode="r+"))}, sys.argv[2])
"""


def load(machine, program, path, before):
    """The seconds of a load, and the sum."""
    seconds, total = machine.run([*before, PYTHON, "-c", program, path]).stdout.split()
    return float(seconds), int(total)


def has(machine, name):
    return not machine.run([PYTHON, "-c", f"import {name}"], check=False).returncode


def compare(machine, name, program, ways):
    """The rows of one framework."""
    loads = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, (path, before) in ways.items():
            loads[way].append(load(machine, program, path, before))
    machine.report.note(f"{name}: " + "; ".join(f"{way} " + " ".join(f"{one[0]:.2f}" for one in some)
                                                for way, some in loads.items()))
    seconds = {way: median([one[0] for one in some]) for way, some in loads.items()}
    for way, bar in BARS.items():
        ratio = seconds[way] / seconds["tmpfs"]
        machine.report.check(f"{name}, {way}: at most {bar} times the time from tmpfs", ratio <= bar,
                             f"{seconds[way]:.2f} s, {ratio:.2f} times")
    machine.report.check(f"{name}: all loads give the same bytes", len({one[1] for some in loads.values() for one in some}) == 1,
                         f"{sum(map(len, loads.values()))} loads compared")


def point_frameworks(machine):
    """Entry."""
    report, size = machine.report, machine.size // 2
    if machine.standin or not has(machine, "torch"):
        report.absent("frameworks that map files", "needs a GPU and torch")
        return
    with machine.mount("gpus=0") as mount:
        mount.warm()
        files = {"data": machine.scratch / "data", "saved": machine.scratch / "data.pt"}
        machine.shell('head -c "$1" "$2" > "$3"', size, machine.source(), files["data"])
        machine.run([PYTHON, "-c", SAVE, files["data"], files["saved"]])
        for path in files.values():
            machine.run(["cp", path, mount.gpu()])
        report.note(f"{size // MIB} MiB; {ROUNDS} fresh processes each, in turns")
        for name, (module, kind, program) in LOADS.items():
            if not has(machine, module):
                report.absent(name, "is not installed")
                continue
            there, file = files[kind], mount.gpu() / files[kind].name
            compare(machine, name, program,
                    {"tmpfs": (there, []), "gpu0": (file, []),
                     "gpumem run": (file, [machine.build / "gpumem", "run", "--"])})
        for path in files.values():
            path.unlink()
