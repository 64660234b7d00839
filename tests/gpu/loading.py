# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The point for gpumem.torch: a model of the shape of Llama is loaded by safetensors from tmpfs and from a GPU's file, and
by gpumem.torch as views and as copies, each figure the median of fresh processes (forked.py), without the imports and the
making of the CUDA context. Tensors of the GPU are saved several times by one process. The interpreter is GPUMEM_PYTHON's, with torch and
safetensors."""

import json
import os
import sys

from forked import Server
from harness import GIB, MIB, median, rate

TIMES = 5
COPY_BAR, SAVE_BAR, VIEW_SECONDS = 1.5e12, 0.85, 0.15
HIDDEN, FFN, KV, VOCABULARY = 3072, 8192, 1024, 128256

COMMON = r'''
import json, os, sys, time
import torch
def shapes(layers, vocabulary, hidden, ffn, kv):
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for name, shape in (("self_attn.q_proj", (hidden, hidden)), ("self_attn.k_proj", (kv, hidden)),
                            ("self_attn.v_proj", (kv, hidden)), ("self_attn.o_proj", (hidden, hidden)),
                            ("mlp.gate_proj", (ffn, hidden)), ("mlp.up_proj", (ffn, hidden)),
                            ("mlp.down_proj", (hidden, ffn)), ("input_layernorm", (hidden,)),
                            ("post_attention_layernorm", (hidden,))):
            yield at + name + ".weight", shape
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocabulary, hidden)
def model(*arguments):
    torch.manual_seed(7)
    return {name: torch.randn(shape, device="cuda", dtype=torch.bfloat16) for name, shape in shapes(*arguments)}
def timed(function, *arguments, **options):
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = function(*arguments, **options)
    torch.cuda.synchronize()
    return time.perf_counter() - start, result
torch.zeros(1, device="cuda")
'''
# Arguments: path, the numbers of the model. Makes the file by safetensors.
MAKE = COMMON + r'''
from safetensors.torch import save_file
tensors = model(*map(int, sys.argv[2:]))
save_file(tensors, sys.argv[1])
print(json.dumps({"n": len(tensors)}))
'''
# Arguments: path, kind. Prints the seconds, and what torch allocated.
LOAD = COMMON + r'''
path, kind = sys.argv[1:]
if kind == "safetensors":
    from safetensors.torch import load_file
    seconds, tensors = timed(load_file, path, device="cuda")
else:
    import gpumem.torch
    seconds, tensors = timed(gpumem.torch.load_file, path, mode=kind)
assert all(tensor.is_cuda for tensor in tensors.values())
again, copying = 0, 0
if kind == "copy":
    del tensors
    again, tensors = timed(gpumem.torch.load_file, path, mode=kind)
    with gpumem.torch.safe_open(path, device="cuda", mode=kind) as file:
        file.get_tensor(file.keys()[0])
        del tensors
        copying, tensors = timed(file.get_tensors)
print(json.dumps({"seconds": seconds, "again": again, "copying": copying, "n": len(tensors),
                  "allocated": torch.cuda.memory_allocated(),
                  "bytes": sum(tensor.nbytes for tensor in tensors.values())}))
'''
# Arguments: two paths. Compares all tensors in all modes with those that safetensors loads.
COMPARE = COMMON + r'''
import gpumem.torch
from safetensors.torch import load_file
wanted = load_file(sys.argv[1], device="cuda")
differing = []
for path in sys.argv[2:]:
    for mode in ("view", "copy", "auto"):
        got = gpumem.torch.load_file(path, mode=mode)
        differing += [f"{path} {mode} {name}" for name in wanted if name not in got or not torch.equal(got[name], wanted[name])]
        del got
print(json.dumps(differing[:5]))
'''
# Arguments: path, the numbers of the model. Prints the seconds of a save, and of torch's own copy of the same bytes.
SAVE = COMMON + r'''
import gpumem.torch
from gpumem import _native
phases = {}
def clock(owner, name):
    function = getattr(owner, name)
    def clocked(*arguments):
        start = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            phases[name] = (time.perf_counter() - start) * 1e3
    setattr(owner, name, clocked)
for name in ("gpumem_create", "gpumem_map_device", "gpumem_publish", "gpumem_close"):
    clock(_native.library(), name)
clock(gpumem.torch._save, "_fill")
tensors = model(*map(int, sys.argv[2:]))
size = sum(tensor.nbytes for tensor in tensors.values())
saves = [timed(gpumem.torch.save_file, tensors, sys.argv[1])[0] for _ in range(6)]
places = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
def copy():
    for name, tensor in tensors.items():
        places[name].copy_(tensor)
copy()
print(json.dumps({"bytes": size, "first": saves[0], "saves": saves[1:], "phases": phases,
                  "copies": [timed(copy)[0] for _ in range(5)]}))
'''


class Loading:
    """The interpreter and its environment."""

    def __init__(self, machine):
        root = machine.tests.parent
        self.machine = machine
        self.python = os.environ.get("GPUMEM_PYTHON") or sys.executable
        library = next((p for p in (machine.build / "libgpumem.so.0", machine.build / "lib" / "libgpumem.so.0")
                        if p.exists()), None)
        self.env = dict(machine.env, PYTHONPATH=str(root / "client" / "python"), GPUMEM_LIBRARY=str(library),
                        PYTHONDONTWRITEBYTECODE="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")

    def missing(self):
        if self.machine.standin:
            return "torch cannot use the stand-in driver"
        done = self.machine.run([self.python, "-c", "import torch, safetensors; torch.zeros(1, device='cuda')"],
                                check=False, env=self.env)
        return f"{self.python} has no torch and safetensors with this GPU" if done.returncode else ""

    def run(self, code, *words):
        return json.loads(self.machine.run([self.python, "-c", code, *words], env=self.env).stdout.splitlines()[-1])



def numbers(size):
    """The arguments of a model of about so many bytes."""
    layer = 2 * (2 * HIDDEN * HIDDEN + 2 * KV * HIDDEN + 3 * FFN * HIDDEN)
    vocabulary = VOCABULARY if size >= 4 * GIB else 8192
    return max(1, (size - 4 * vocabulary * HIDDEN) // layer), vocabulary, HIDDEN, FFN, KV


def many(server, *words):
    """The results of several children, after one whose late imports the others are spared."""
    return [server.run(LOAD, *words)[0] for _ in range(TIMES + 1)][1:]


def load(loading, machine, source, staged):
    figures = {}
    with Server([loading.python], ["torch", "safetensors.torch", "gpumem.torch"], loading.env, machine.scratch / "errors") as server:
        for label, path, kind in (("tmpfs, safetensors", source, "safetensors"), ("gpu0, safetensors", staged, "safetensors"),
                                  ("view", staged, "view"), ("copy", staged, "copy"), ("auto, trusted", staged, "auto")):
            figures[label] = many(server, path, kind)
        os.removexattr(staged, "user.gpumem.share")
        figures["auto, a private copy"] = many(server, staged, "auto")
        os.setxattr(staged, "user.gpumem.share", b"trusted")
    took = {label: median([one["seconds"] for one in runs]) for label, runs in figures.items()}
    for label, runs in figures.items():
        machine.report.note(f"{label}: {took[label]:.4f} s ({', '.join(format(one['seconds'], '.4f') for one in runs)}), "
                            f"{runs[0]['n']} tensors, torch allocated {runs[0]['allocated'] / MIB:.0f} MiB")
    size = figures["view"][0]["bytes"]
    for label in ("view", "auto, trusted"):
        machine.report.check(f"load_file, {label}: at most {VIEW_SECONDS} s, and torch allocates nothing",
                             took[label] <= VIEW_SECONDS and figures[label][0]["allocated"] < MIB,
                             f"{took[label]:.3f} s; safetensors from tmpfs {took['tmpfs, safetensors']:.2f} s")
    again, copying = (median([one[key] for one in figures["copy"]]) for key in ("again", "copying"))
    machine.report.check("get_tensors of an open file, copy, into memory that torch has: 1.5 TB/s",
                         size / copying >= COPY_BAR, f"{rate(size, copying)}; load_file {rate(size, again)}, "
                         f"{again:.4f} s, the first in a process {rate(size, took['copy'])}, {took['copy']:.4f} s")


def save(loading, machine, mount, size):
    run = loading.run(SAVE, mount.gpu() / "saved.safetensors", *numbers(size))
    took, copy, first, total = median(run["saves"]), median(run["copies"]), run["first"], run["bytes"]
    machine.report.note("the last save, in ms: " + ", ".join(f"{name} {ms:.2f}" for name, ms in run["phases"].items()))
    machine.report.check(f"save_file of {total / GIB:.1f} GiB: at least {SAVE_BAR} of the GPU's own copy rate",
                         copy / took >= SAVE_BAR, f"{rate(total, took)}, the first in a process {rate(total, first)}; "
                         f"copy_ {rate(total, copy)}; {copy / took:.2f}")


def point_loading(machine):
    loading = Loading(machine)
    reason = loading.missing()
    if reason:
        machine.report.absent("gpumem.torch", reason)
        return
    source = machine.scratch / "model.safetensors"
    loading.run(MAKE, source, *numbers(machine.size))
    try:
        with machine.mount() as mount:
            mount.warm()
            staged = mount.gpu() / source.name
            machine.run(["cp", source, staged])
            os.setxattr(staged, "user.gpumem.share", b"trusted")
            load(loading, machine, source, staged)
            for size in (GIB, machine.size):
                save(loading, machine, mount, size)
            saved = mount.gpu() / "saved.safetensors"
            os.setxattr(saved, "user.gpumem.share", b"trusted")
            differing = loading.run(COMPARE, source, staged, saved)
            machine.report.check("every tensor of every mode is the one that safetensors loads, of a saved file too",
                                 differing == [], " ".join(differing))
    finally:
        source.unlink()
