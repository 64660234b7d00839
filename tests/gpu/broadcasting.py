# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The point for gpumem.broadcast: from one mount to another on one GPU by gloo, and from GPU to GPU by NCCL if there are
two GPUs, each beside a bare torch.distributed.broadcast of as many bytes. The interpreter is GPUMEM_PYTHON's, with
torch."""

import json

from harness import GIB, rate
from loading import Loading

GOAL, AGAIN_SECONDS = 0.8, 0.3

# Arguments: a small file, its destination, the file, its destination. The small file makes the connections. Rank 0
# prints the report, that of a second run, and the seconds of three bare broadcasts.
WORKER = r'''
import json, sys, time
import torch
import torch.distributed as dist
from gpumem import broadcast as gb
from gpumem.broadcast._engine import open_engine
small, small_dest, path, dest = sys.argv[1:]
with open_engine("torch", None) as engine:
    gb.broadcast(small, small_dest, engine=engine)
    report = gb.broadcast(path, dest, engine=engine)
    again = gb.broadcast(path, dest, engine=engine)
    group = engine.group((0, 1), report.cuda)
    device = torch.device("cuda", engine.rank) if report.cuda else torch.device("cpu")
    tensor = torch.zeros(report.bytes, dtype=torch.uint8, device=device)
    bare = []
    for _ in range(4):
        engine.gather(None)
        start = time.monotonic()
        dist.broadcast(tensor, 0, group=group)
        if report.cuda:
            torch.cuda.synchronize(device)
        engine.gather(None)
        bare.append(time.monotonic() - start)
    if engine.rank == 0:
        print(json.dumps({**report._asdict(), "again": again._asdict(), "bare": sorted(bare[1:])}), flush=True)
'''


def measure(loading, machine, what, cuda, source, target):
    """Broadcasts a file from the folder source to the folder target, and compares rate and bytes."""
    worker = machine.scratch / "broadcast_worker.py"
    worker.write_text(WORKER)
    done = machine.run([loading.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", worker,
                        source / "small", target / "small-copy", source / "large", target / "large-copy"],
                       env=loading.env, timeout=150)
    result = json.loads(next(line[line.index("{"):] for line in done.stdout.splitlines() if '"bare"' in line))
    machine.report.check(f"{what}: {'from GPU to GPU' if cuda else 'through the CPU'}", result["cuda"] == cuda)
    bare = result["bare"][1]
    machine.report.check(f"{what}: at least {GOAL} of a bare broadcast", bare / result["seconds"] >= GOAL,
                         f"{rate(result['bytes'], result['seconds'])}; bare {rate(result['bytes'], bare)}; "
                         f"{bare / result['seconds']:.2f}")
    machine.report.check(f"{what}: a second run sends nothing, and takes at most {AGAIN_SECONDS} s",
                         result["again"]["sent"] == 0 and result["again"]["seconds"] <= AGAIN_SECONDS,
                         f"{result['again']['seconds']:.3f} s")
    differs = machine.run(["cmp", source / "large", target / "large-copy"], check=False)
    machine.report.check(f"{what}: the same bytes", differs.returncode == 0, differs.stdout.strip())


def point_broadcast(machine):
    loading = Loading(machine)
    reason = loading.missing()
    if reason:
        machine.report.absent("gpumem.broadcast", reason)
        return
    with machine.mount() as first, machine.mount() as second:
        first.warm()
        for name, length in (("small", 1 << 20), ("large", machine.size)):
            machine.shell('head -c "$1" "$2" >"$3"', length, machine.source(), first.gpu() / name)
        measure(loading, machine, "one GPU, two mounts, gloo", False, first.gpu(), second.gpu())
        if machine.gpus < 2:
            machine.report.absent("two GPUs, NCCL", "one GPU")
        else:
            measure(loading, machine, "two GPUs, NCCL", True, first.gpu(), first.path / "gpu1")
