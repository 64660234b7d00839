# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Point 9: gpumem verify on the GPU: its sums beside the CPU's, the rate of the kernel, and the time of its start."""

import json
import os
import time

from harness import GIB, MIB, rate
from pointers import allocated, guarded, room, size_text, timed

BLOCK = 65536
SIZES = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 7 * BLOCK + 4711)
LARGE, ROUNDS, WANTED = 32 * GIB, 5, 1e12


def verify(machine, path, *words):
    """The output of gpumem verify, and its seconds."""
    start = time.monotonic()
    found = json.loads(machine.run([machine.build / "gpumem", "verify", "-a", "xxh64-tree", "--json", *words, path]).stdout)
    return found, time.monotonic() - start


def sums_are_one(machine, path, size):
    cpu, gpu = (verify(machine, path, f"--on={where}")[0] for where in ("cpu", "gpu"))
    by_gpu = gpu.get("gpu_bytes", 0)
    machine.report.check(f"{size} bytes: the GPU's sum is the CPU's",
                         gpu["sum"] == cpu["sum"] and cpu["on"] == "cpu" and by_gpu == size // BLOCK * BLOCK,
                         f"{cpu['sum']}; {by_gpu} bytes by the GPU, {gpu.get('checked_bytes', 0)} of them by the CPU too")


def equal_sums(machine, mount):
    large = min(machine.size, room(machine, mount, GIB))
    for size in (*SIZES, large, large - 12345):
        path = mount.gpu() / "verified"
        with open(machine.source(), "rb") as source, open(path, "wb", buffering=0) as file:
            done = 0
            while done < size:
                done += file.write(source.read(min(size - done, 64 * MIB)))
        sums_are_one(machine, path, size)
        path.unlink()


def a_changed_byte(machine, mount):
    path, size = mount.gpu() / "changed", room(machine, mount, GIB)
    with allocated(path, size):
        before = verify(machine, path, "--on=gpu")[0]["sum"]
        with open(path, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), b"x", size // 2 + 1)
        after = verify(machine, path, "--on=gpu")[0]["sum"]
        sums_are_one(machine, path, size)
    machine.report.check("a byte in the middle changes the GPU's sum", before != after, f"{before}, then {after}")


def speed(machine, mount):
    for wanted in (GIB, LARGE):
        path, size = mount.gpu() / "large", room(machine, mount, wanted)
        with allocated(path, size):
            found = [verify(machine, path, "--on=gpu") for _ in range(ROUNDS)]
            best = min(one["gpu_seconds"] for one, _ in found)
            _, by_cpu = verify(machine, path, "--on=cpu")
            auto = verify(machine, path)[0]["on"]
        all_in_all = sorted(seconds for _, seconds in found)[ROUNDS // 2]
        timed(machine, f"{size_text(size)}: the kernel reads at least {rate(WANTED, 1)}", size / best >= WANTED,
              f"{rate(size, best)}, best of {ROUNDS}; the whole command {all_in_all:.2f} s, by the CPU {by_cpu:.2f} s; "
              f"auto takes the {auto.upper()}")


def point_verify(machine):
    with machine.mount("gpus=0") as mount:
        mount.warm()
        guarded(machine, "sums of many sizes", lambda: equal_sums(machine, mount))
        guarded(machine, "a changed byte", lambda: a_changed_byte(machine, mount))
        guarded(machine, "the kernel's rate", lambda: speed(machine, mount))
