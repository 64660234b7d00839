# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Sets of tensors of a real torch, with expandable segments and without: the times of gpumem.torch.share and attach, the bytes, and
what a consumer of a killed producer is told. The interpreter is GPUMEM_PYTHON's."""

import signal
import subprocess

from examples import Examples
from pointers import answers, timed

TENSORS = 18_000
ROUNDS, ATTACH_MOST = 11, 100  # milliseconds
SHARE = r"""
import sys, time, torch, gpumem.torch
folder, tensors, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
elements = size // tensors // 4
shared = {f"layers.{n}.weight": torch.full((elements,), n, dtype=torch.float32, device="cuda") for n in range(tensors)}
begin = time.monotonic()
made = gpumem.torch.share(folder, shared)
print("share", (time.monotonic() - begin) * 1000)
print("files", len(made.files))
print("ready", 1, flush=True)
sys.stdin.read()
"""
ATTACH = r"""
import statistics, sys, threading, time, torch, gpumem.torch
folder, rounds = sys.argv[1], int(sys.argv[2])
torch.zeros(1, device="cuda")
times = []
for _ in range(rounds):
    begin = time.monotonic()
    found = gpumem.torch.attach(folder)
    times.append((time.monotonic() - begin) * 1000)
    buffers = [buffer.path for buffer in found.buffers]
    if _ + 1 < rounds:
        del found
times, rest = sorted(times), list(found.items())
print("attach", statistics.median(times))
print("attach_p90", times[len(times) * 9 // 10])
print("files", len(buffers))
ends = torch.stack([t for _, tensor in rest for t in (tensor[0], tensor[-1])]).cpu()
numbers = torch.tensor([int(name.split(".")[1]) for name, _ in rest], dtype=torch.float32).repeat_interleave(2)
print("right", int(torch.equal(ends, numbers)))
print("allocated", torch.cuda.memory_allocated())
told = threading.Event()
found.on_end(told.set)
print("ready", 1, flush=True)
print("told", int(told.wait(20)))
"""


def begun(examples, program, allocator, *words):
    process = subprocess.Popen([examples.python, "-c", program, *map(str, words)], text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=examples.machine.report.log_file,
                               env=dict(examples.env, PYTORCH_CUDA_ALLOC_CONF=allocator))
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("ready"):
            break
    return process, answers("".join(lines))


def sets(machine, folder, title, size, allocator):
    examples = Examples(machine)
    if not examples.torch:
        machine.report.absent(title, f"{examples.python} has no torch with this GPU")
        return
    producer, made = begun(examples, SHARE, allocator, folder, TENSORS, size)
    consumer, found = begun(examples, ATTACH, allocator, folder, ROUNDS)
    producer.send_signal(signal.SIGKILL)
    told = answers(consumer.communicate(timeout=30)[0])
    producer.communicate()
    left = machine.settles(lambda: [path.name for path in folder.iterdir()] == ["tensors.json"])
    machine.report.check(f"{title}: the bytes, nothing allocated, and the end is told",
                         found["right"] == 1 and found["allocated"] < 1 << 20 and told["told"] == 1 and left,
                         f"{made['files']:.0f} files, {found['allocated']:.0f} bytes allocated by the consumer")
    timed(machine, title, found["attach"] <= ATTACH_MOST,
          f"share {made['share']:.0f} ms, attach {found['attach']:.0f} ms (p90 {found['attach_p90']:.0f})")
