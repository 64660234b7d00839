# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Point "pool": allocations in an arena beside the driver's, and a training loop of torch in a pool beside torch's own
allocator, whose parameters another process sees.

As a program: pool.py --child train DIRECTORY | --child sum PATH OFFSET COUNT."""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
ALLOCATIONS, ROUNDS, ALLOCATION_RATIO = 100, 7, 2.0
STEPS, TURNS, WARM_UP, STEP_RATIO = 200, 31, 100, 1.03


# --- the children, which have torch

def training(torch, steps):
    """Returns a function that trains a new model for so many steps, and gives the seconds and the model."""
    x, y = torch.randn(256, 512, device="cuda"), torch.randn(256, 64, device="cuda")

    def train():
        torch.manual_seed(1)
        layers = [torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 2048), torch.nn.GELU(),
                  torch.nn.Linear(2048, 64)]
        model = torch.nn.Sequential(*layers).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        begun = 0
        for step in range(steps + WARM_UP):
            if step == WARM_UP:
                torch.cuda.synchronize()
                begun = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        return time.perf_counter() - begun, model
    return train


def total(tensor):
    """A sum that depends on every bit and is the same in every process."""
    import torch
    return int(tensor.detach().contiguous().view(torch.int32).to(torch.int64).sum().item())


def child_train(directory):
    import gpumem.torch
    import torch
    train = training(torch, STEPS)
    kept, plain = gpumem.torch.pool(directory), torch.cuda.MemPool()
    pools = {"own": contextlib.nullcontext, "pool": lambda: torch.cuda.use_mem_pool(kept),
             "control": lambda: torch.cuda.use_mem_pool(plain)}
    took = {name: [] for name in pools}
    for turn in range(TURNS):
        # Every second turn goes backwards, so that a machine that becomes slower slows all three alike. The last model
        # of all is one in the pool.
        for name in sorted(pools, reverse=turn % 2 == 1):
            model = None
            with pools[name]():
                seconds, model = train()
            took[name].append(seconds)
    print("torch", torch.__version__)
    for name, seconds in took.items():
        ratios = sorted(mine / own for mine, own in zip(seconds, took["own"]))
        print(f"{name}_us", statistics.median(seconds) / STEPS * 1e6)
        print(f"{name}_ratio", statistics.median(ratios))
        print(f"{name}_p10", ratios[TURNS // 10])
        print(f"{name}_p90", ratios[-1 - TURNS // 10])
    weight = model[2].weight
    path, offset = gpumem.torch.pool_place(weight)
    print("sum", total(weight))
    sys.stdout.flush()
    subprocess.run([sys.executable, __file__, "--child", "sum", path, str(offset), str(weight.numel())], check=True)
    del model, weight, kept, train
    torch.cuda.empty_cache()
    print("left", int(os.path.exists(path)))


def child_sum(path, offset, count):
    import gpumem
    import torch
    view = gpumem.open(path, "r+").view("float32", int(count), int(offset))
    print("other", total(torch.from_dlpack(view)))


# --- the point

def allocations(machine, mount):
    from pointers import helper, timed
    size = 64 * MIB if not machine.standin else MIB
    free = machine.smi_memory(0, mount)["free"]
    count = ALLOCATIONS if free > 2 * ALLOCATIONS * size else max(free // (2 * size), 1)
    found = helper(machine, "arena", mount.gpu() / "arena", count, size, ROUNDS, timeout=60)
    timed(machine, f"{count} allocations of {size // MIB} MiB in an arena, beside cuMemAlloc",
          found["ratio"] <= ALLOCATION_RATIO,
          f"{found['arena_total_us'] / count:.1f} us each, cuMemAlloc {found['driver_total_us'] / count:.1f} us: "
          f"{found['ratio']:.2f} times (at most {ALLOCATION_RATIO}); medians of single ones {found['arena_us']:.1f} and "
          f"{found['driver_us']:.1f} us; the arena is opened in {found['open_us']:.0f} us")


def environment(machine):
    package = next((p for p in (HERE.parent.parent / "client" / "python", HERE.parent.parent / "python")
                    if (p / "gpumem").is_dir()), None)
    library = next((p for p in (machine.build / "libgpumem.so.0", machine.build / "lib" / "libgpumem.so.0")
                    if p.exists()), "libgpumem.so.0")
    return dict(machine.env, PYTHONPATH=str(package), PYTHONDONTWRITEBYTECODE="1", GPUMEM_LIBRARY=str(library))


def training_in_a_pool(machine, mount):
    from pointers import Absent, answers
    python = os.environ.get("GPUMEM_PYTHON") or sys.executable
    env = environment(machine)
    known = machine.run([python, "-c", "import torch; torch.cuda.MemPool; torch.zeros(1, device='cuda')"], check=False,
                        env=env)
    if machine.standin or known.returncode:
        raise Absent("no torch with torch.cuda.MemPool and a GPU")
    found = answers(machine.run([python, __file__, "--child", "train", mount.path], env=env, timeout=200).stdout)
    machine.report.check(f"{TURNS} times {STEPS} steps of training in a pool, each beside torch's own allocator",
                         found["pool_ratio"] <= STEP_RATIO,
                         f"{found['pool_us']:.0f} us a step, torch's own {found['own_us']:.0f} us: {found['pool_ratio']:.3f} times in "
                         f"the median (at most {STEP_RATIO}), p10 to p90 {found['pool_p10']:.3f} to {found['pool_p90']:.3f}; a "
                         f"MemPool of torch's own memory {found['control_ratio']:.3f}, {found['control_p10']:.3f} to "
                         f"{found['control_p90']:.3f}; torch {found['torch']}")
    machine.report.check("another process sees the same parameters", found["sum"] == found["other"],
                         f"sums {found['sum']:.0f} and {found['other']:.0f}")
    machine.report.check("the file goes with the pool", found["left"] == 0)


def point_pool(machine):
    from pointers import guarded
    with machine.mount("gpus=0") as mount:
        mount.warm()
        guarded(machine, "allocations in an arena", lambda: allocations(machine, mount))
        guarded(machine, "torch in a pool", lambda: training_in_a_pool(machine, mount))


if __name__ == "__main__":
    if sys.argv[1:3] == ["--child", "train"]:
        child_train(sys.argv[3])
    elif sys.argv[1:3] == ["--child", "sum"]:
        child_sum(*sys.argv[3:6])
    else:
        sys.exit(__doc__)
