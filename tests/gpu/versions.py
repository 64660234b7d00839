# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Versions of a real torch: a trainer publishes, and a reader of another user, whose decoding step is a captured CUDA
graph, changes to each version, on the same GPU and on another: the time from the trainer's last kernel to the first token, the reader's pause, the memory
that both take, and that each step is of one whole version. The interpreter is GPUMEM_PYTHON's."""

import contextlib
import os
import shutil
import statistics
import subprocess

from examples import Examples
from harness import GIB, Mount

SIZE, TENSORS, PUBLISHED = 16 * GIB, 128, 12
READER_USER = 65534
TOKEN_MOST, TOKEN_MOST_ELSEWHERE, PAUSE_MOST = 50, 100, 10  # milliseconds
TRAIN = r"""
import sys, time, torch, gpumem.torch
folder, size, tensors, published = sys.argv[1], *map(int, sys.argv[2:5])
device = "cuda" if torch.cuda.is_available() else "cpu"
like = {f"layers.{n}.weight": torch.empty(size // tensors // 2, dtype=torch.bfloat16, device="meta") for n in range(tensors)}
versions = gpumem.torch.Versions(folder, copies=sys.argv[5:])
for number in range(1, published + 1):
    with versions.new(like=like, name=str(number)) as new:
        for tensor in new.tensors.values():
            tensor.fill_(number)
        if device == "cuda":
            torch.cuda.synchronize()
        done = time.monotonic()
    print(f"done.{number}", done, flush=True)
    if number == 1:
        sys.stdin.readline()
    time.sleep(0.3)
sys.stdin.read()
"""
SERVE = r"""
import sys, time, torch, gpumem.torch
folder, last = sys.argv[1], sys.argv[2]
cuda = torch.cuda.is_available()
versions = gpumem.torch.Versions(folder)
tensors = list(versions.load().values())
def ends():
    seen = torch.stack([end for tensor in tensors for end in (tensor[0], tensor[-1])]).float()
    return torch.stack([seen.min(), seen.max()])
step = ends
if cuda:
    for _ in range(3):
        ends()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ends()
    def step():
        graph.replay()
        return out
name = versions.step()
print("loaded", 1, flush=True)
wrong = steps = 0
while True:
    begin = time.monotonic()
    found = versions.step()
    middle = time.monotonic()
    low, high = step().tolist()
    end = time.monotonic()
    steps += 1
    wrong += not low == high == int(found)
    if found != name:
        # Outside of the times: every byte of the version, by the GPU.
        wrong += any(float(tensor.min()) != int(found) or float(tensor.max()) != int(found) for tensor in tensors)
        print(f"token.{found}.{steps}", end)
        print(f"pause.{found}.{steps}", (middle - begin) * 1000, flush=True)
        if name == last:
            break
    name = found
free, total = torch.cuda.mem_get_info() if cuda else (0, 0)
print("used", total - free)
print("steps", steps)
print("wrong", wrong)
"""


def lines_until(process, name):
    lines = []
    for line in process.stdout:
        lines.append(line.split())
        if line.startswith(name):
            return lines
    raise AssertionError(f"it ended before {name}")


def rolled_back(machine, folder, reader):
    """Milliseconds until the first token under the earlier version, the command included, and the reader's lines."""
    begin = float(machine.run(["python3", "-c", "import time; print(time.monotonic())"]).stdout)
    machine.run([machine.build / "gpumem", "rollback", folder])
    lines = [line.split() for line in reader.communicate(timeout=60)[0].splitlines()]
    token = next(float(value) for name, value in lines if name.startswith("token"))
    return (token - begin) * 1000, lines


def versions(machine, examples, title, token_most, folder, *copies):
    """Trainers and readers see their own GPU alone: copies are the daemon's."""
    title = f"{PUBLISHED} versions of {SIZE // GIB} GiB, {title}"
    for each in (folder, *copies):
        each.mkdir()
        os.setxattr(each, "user.gpumem.share", b"trusted")
    with contextlib.ExitStack() as running:
        trainer = started(examples, TRAIN, folder, SIZE, TENSORS, PUBLISHED, *copies, gpu=0)
        running.callback(trainer.kill)
        folder = copies[-1] if copies else folder
        done = lines_until(trainer, "done.1")
        as_user = ["setpriv", f"--reuid={READER_USER}", f"--regid={READER_USER}", "--clear-groups"]
        reader = started(examples, SERVE, folder, PUBLISHED, gpu=len(copies), before=as_user)
        running.callback(reader.kill)
        lines_until(reader, "loaded")
        trainer.stdin.write("\n")
        trainer.stdin.flush()
        done += lines_until(trainer, f"done.{PUBLISHED} ")
        seen = lines_until(reader, f"pause.{PUBLISHED}.")
        back, rest = rolled_back(machine, folder, reader)
        trainer.communicate(timeout=60)
    report(machine, title, token_most, {name: float(value) for name, value in done}, seen, rest, back)


def started(examples, program, *words, gpu, before=()):
    return subprocess.Popen([*before, examples.python, "-c", program, *map(str, words)], text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=examples.machine.report.log_file,
                            env=dict(examples.env, HOME="/tmp", CUDA_VISIBLE_DEVICES=str(gpu)))


def report(machine, title, token_most, done, seen, rest, back):
    last = {name: float(value) for name, value in rest}
    tokens = [(float(value) - done[f"done.{name.split('.')[1]}"]) * 1000 for name, value in seen if name.startswith("token")]
    pauses = [float(value) for name, value in seen if name.startswith("pause")]
    said = (f"last kernel to first token {statistics.median(tokens):.1f} ms (to {max(tokens):.1f}), pause "
            f"{statistics.median(pauses):.2f} ms (to {max(pauses):.2f}), rollback {back:.1f} ms with the command, "
            f"{last['used'] / GIB:.1f} GiB of the GPU in use, {last['steps']:.0f} steps")
    machine.report.check(f"{title}: each step is of one whole version", last["wrong"] == 0, f"{last['wrong']:.0f} wrong")
    machine.report.check(title, statistics.median(tokens) <= token_most and statistics.median(pauses) <= PAUSE_MOST, said)


def point_versions(machine):
    examples = Examples(machine)
    if not examples.torch:
        machine.report.absent("versions", f"{examples.python} has no torch with this GPU")
        return
    with Mount(machine, backend="cuda") as mount:
        set_of = [mount.path / f"gpu{n}" / "versions" for n in range(2)]
        versions(machine, examples, "a reader of another user with a captured graph", TOKEN_MOST, set_of[0])
        shutil.rmtree(set_of[0])
        title = "a reader on another GPU"
        if machine.gpus > 1:
            versions(machine, examples, title, TOKEN_MOST_ELSEWHERE, *set_of)
        else:
            machine.report.absent(title, "one GPU")
