# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Programs that map files, as they are: safetensors.torch.load_file(device="cuda") of a file in tmpfs, of a file on a
GPU, and of that file with the preload library. Each load is in a fresh process that has a CUDA context; all must get
the same bytes. The interpreter is GPUMEM_PYTHON's, with torch and safetensors."""

import json
import os
import re
import sys

from harness import MIB, Failure, median
from preload import library_of, preloaded

TENSORS, ROUNDS = 312, 5
PYTHON = os.environ.get("GPUMEM_PYTHON") or sys.executable
PLAIN_RATIO, PRELOAD_RATIO = 1.2, 1.0
COPIED = re.compile(r" copied (\d+) ")
LOAD = r"""
import sys, time, torch
from safetensors.torch import load_file
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
start = time.monotonic()
tensors = load_file(sys.argv[1], device="cuda")
torch.cuda.synchronize()
seconds = time.monotonic() - start
total = sum(i * int(tensors[name].view(torch.int32).sum(dtype=torch.int64)) for i, name in enumerate(sorted(tensors), 1))
print(len(tensors), seconds, total)
"""


def make_model(source, path, size):
    """A safetensors file of random bytes."""
    each = size // TENSORS // 512 * 512
    entries = {f"layer.{i}": {"dtype": "BF16", "shape": [each // 512, 256], "data_offsets": [i * each, (i + 1) * each]}
               for i in range(TENSORS)}
    head = json.dumps(entries).encode()
    head += b" " * (-(len(head) + 8) % 64)
    with open(source, "rb") as data, open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        left = each * TENSORS
        while left:
            left -= file.write(data.read(min(left, 16 * MIB)))


def load(machine, path, env):
    """The seconds of a load, the sum of the tensors, and the number of copies out of the file's memory."""
    done = machine.run([PYTHON, "-c", LOAD, path], env=dict(env, GPUMEM_PRELOAD_STATS="1"))
    count, seconds, total = done.stdout.split()
    if int(count) != TENSORS:
        raise Failure(f"{count} tensors, wanted {TENSORS}")
    found = COPIED.search(done.stderr)
    return float(seconds), int(total), int(found[1]) if found else 0


def point_mapped(machine):
    report, library = machine.report, library_of(machine)
    what = f'load_file(device="cuda") of {machine.size // MIB} MiB'
    has_torch = not machine.standin and not machine.run(
        [PYTHON, "-c", "import torch, safetensors.torch; torch.zeros(1, device='cuda')"], check=False).returncode
    if not has_torch or not library:
        report.absent(what, "needs a GPU, torch, safetensors and the preload library")
        return
    with machine.mount("gpus=0") as mount:
        mount.warm()
        there, file = machine.scratch / "model.safetensors", mount.gpu() / "model.safetensors"
        make_model(machine.source(), there, machine.size)
        machine.run(["cp", there, file])
        ways = {"tmpfs": (there, machine.env), "gpu0": (file, machine.env), "preload": (file, preloaded(machine, library))}
        loads = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (path, env) in ways.items():
                loads[name].append(load(machine, path, env))
        seconds = {name: median([one[0] for one in some]) for name, some in loads.items()}
        report.note(f"medians of {ROUNDS} fresh processes, in turns; all: " + "; ".join(
            f"{name} " + " ".join(f"{one[0]:.2f}" for one in some) for name, some in loads.items()))
        for name, bar in (("gpu0", PLAIN_RATIO), ("preload", PRELOAD_RATIO)):
            ratio = seconds[name] / seconds["tmpfs"]
            report.check(f"{what}, {name}: at most {bar} times the time from tmpfs", ratio <= bar,
                         f"{seconds[name]:.3f} s, tmpfs {seconds['tmpfs']:.3f} s, ratio {ratio:.2f}")
        report.check("all loads give the same bytes", len({one[1] for some in loads.values() for one in some}) == 1,
                     f"{sum(map(len, loads.values()))} loads compared")
        copied = min(one[2] for one in loads["preload"])
        report.check("with the preload library the GPU copies all tensors", copied == TENSORS, f"{copied} of {TENSORS}")
        os.unlink(there)
