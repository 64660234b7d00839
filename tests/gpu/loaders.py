# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Loaders of models that others wrote, as PyPI has them: fastsafetensors, runai-model-streamer and checkpoint-engine load a
model to the GPU from tmpfs and from gpu0/; safetensors does so from gpu0/ under `gpumem run`, and gpumem.torch shows the
file's memory as tensors. Each load is in a fresh
process that has used the GPU before. The interpreter is GPUMEM_PYTHON's; the loaders are not in the bundle."""

import json
import os
import shutil

from harness import MIB, Failure, median, rounds
from loading import COMMON, MAKE, Loading, numbers

ROUNDS = rounds(5)
TIMES_OTHERS, OWN_BAR = 3, 1.0

# Each program loads sys.argv[1] into `tensors`, by name; a sum over all bits shows that all have the same.
BEGIN = COMMON + r"""
path = sys.argv[1]
"""
END = r"""
total = sum(int(tensor.contiguous().view(torch.int16).sum(dtype=torch.int64)) for tensor in tensors.values())
assert all(tensor.is_cuda for tensor in tensors.values())
print(json.dumps({"seconds": seconds, "tensors": len(tensors), "total": total}))
"""
SAFETENSORS = BEGIN + r"""
from safetensors.torch import load_file
seconds, tensors = timed(load_file, path, device="cuda")
""" + END
VIEW = BEGIN + r"""
from gpumem.torch import load_file
seconds, tensors = timed(load_file, path, mode="view")
""" + END
# Without GPUDirect Storage, which needs a kernel module and its own file systems.
FASTSAFETENSORS = BEGIN + r"""
from fastsafetensors import SafeTensorsFileLoader
def load():
    loader = SafeTensorsFileLoader(None, "cuda:0", nogds=True)
    loader.add_filenames({0: [path]})
    buffer = loader.copy_files_to_device()
    return {name: buffer.get_tensor(name) for name in loader.get_keys()}, buffer, loader
seconds, (tensors, *kept) = timed(load)
""" + END
STREAMER = BEGIN + r"""
from runai_model_streamer import SafetensorsStreamer
def load():
    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path)
        return {name: tensor.to("cuda", non_blocking=True) for name, tensor in streamer.get_tensors()}
seconds, tensors = timed(load)
""" + END
# The process of the engine: copies what comes through the buffer.
ENGINE = r"""
import sys, torch, zmq
from checkpoint_engine import update_weights_from_ipc
tensors = {}
def copy(weights):
    tensors.update({name: tensor.clone() for name, tensor in weights})
torch.zeros(1, device="cuda")
print("ready", flush=True)
update_weights_from_ipc(zmq.Context(), sys.stdin.readline().strip(), 0, run=copy)
print("loaded", flush=True)
print(len(tensors), sum(int(t.contiguous().view(torch.int16).sum(dtype=torch.int64)) for t in tensors.values()), flush=True)
"""
# The server reads the file into pinned memory (by default it pins a file of /dev/shm in place, and removes the file), and
# sends it through a buffer of the GPU to the engine's process, which has used the GPU before.
CHECKPOINT_ENGINE = BEGIN + f"""
ENGINE = {ENGINE!r}
""" + r"""
import subprocess
from checkpoint_engine import ParameterServer
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
engine = subprocess.Popen([sys.executable, "-c", ENGINE], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert engine.stdout.readline() == "ready\n"
server = ParameterServer(auto_pg=True)
def load():
    server.register_checkpoint("model", files=[path], use_inplace_pin_memory=False)
    server.gather_metas("model")
    server.update("model", lambda sockets: print(sockets[0][1], file=engine.stdin, flush=True))
    assert engine.stdout.readline() == "loaded\n"
seconds, _ = timed(load)
count, total = map(int, engine.stdout.readline().split())
print(json.dumps({"seconds": seconds, "tensors": count, "total": total}))
"""
LOADERS = {"fastsafetensors": ("fastsafetensors", FASTSAFETENSORS),
           "runai-model-streamer": ("runai_model_streamer", STREAMER),
           "checkpoint-engine": ("checkpoint_engine", CHECKPOINT_ENGINE)}


def load(loading, before, code, path):
    """What a fresh process prints."""
    argv = [*before, loading.python, "-c", code, path]
    said = loading.machine.run(argv, env=loading.plain).stdout.strip().splitlines()
    if not said or not said[-1].startswith("{"):
        raise Failure(f"a loader printed {said[-1:]}")
    return json.loads(said[-1])


def measure(loading, programs, source, staged):
    """The results of each program from each place, in turns."""
    run = [loading.machine.build / "gpumem", "run", "--"]
    ways = {(name, place): ([], code, path) for name, code in programs.items()
            for place, path in (("tmpfs", source), ("gpu0", staged))}
    ways["safetensors", "gpumem run"] = run, SAFETENSORS, staged
    modules = os.pathsep.join(filter(None, (loading.env["PYTHONPATH"], loading.plain.get("PYTHONPATH"))))
    ours = ["env", f"PYTHONPATH={modules}", f"GPUMEM_LIBRARY={loading.env['GPUMEM_LIBRARY']}"]
    ways["gpumem.torch", "by path"] = ours, VIEW, staged
    results = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, words in ways.items():
            results[way].append(load(loading, *words))
    return results


def show(report, results):
    """The rows."""
    for (name, place), some in results.items():
        report.note(f"{name}, {place}: " + " ".join(f"{one['seconds']:.3f}" for one in some) + " s")
    seconds = {way: median([one["seconds"] for one in some]) for way, some in results.items()}
    ours = seconds.pop(("safetensors", "gpumem run"))
    best = min((value, name) for (name, place), value in seconds.items() if place == "tmpfs")
    report.check(f"safetensors under gpumem run: {TIMES_OTHERS} times as fast as the best of them from tmpfs",
                 ours * TIMES_OTHERS <= best[0], f"{ours:.3f} s, {best[1]} {best[0]:.3f} s: {best[0] / ours:.1f} times")
    for (name, place), value in seconds.items():
        if place == "gpu0":
            ratio = value / seconds[name, "tmpfs"]
            report.check(f"{name} from gpu0/: at most {OWN_BAR} times its own time from tmpfs", ratio <= OWN_BAR,
                         f"{value:.3f} s, {ratio:.2f} times")
    report.check("all loads give the same bytes",
                 len({(one["tensors"], one["total"]) for some in results.values() for one in some}) == 1,
                 f"{sum(map(len, results.values()))} loads compared")


def point_loaders(machine):
    """Entry."""
    loading = Loading(machine)
    reason = loading.missing()
    if reason:
        machine.report.absent("loaders that others wrote", reason)
        return
    loading.plain = {name: value for name, value in machine.env.items() if not name.startswith("GPUMEM_")}
    programs = {"safetensors": SAFETENSORS}
    for name, (module, code) in LOADERS.items():
        if machine.run([loading.python, "-c", f"import {module}"], check=False, env=loading.plain).returncode:
            machine.report.absent(name, "is not installed")
        else:
            programs[name] = code
    source = machine.scratch / "model.safetensors"
    loading.run(MAKE, source, *numbers(machine.size))
    try:
        with machine.mount("gpus=0") as mount:
            mount.warm()
            staged = mount.gpu() / source.name
            shutil.copyfile(source, staged)
            machine.report.note(f"{source.stat().st_size // MIB} MiB; {ROUNDS} fresh processes each, in turns")
            show(machine.report, measure(loading, programs, source, staged))
    finally:
        source.unlink()
