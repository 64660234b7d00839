# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The point for scripts/examples: each example runs on a GPU as a user would run it, with PyTorch if the interpreter
(GPUMEM_PYTHON) has PyTorch, and else through the BAR."""

import os
import re
import subprocess
import sys

from harness import MIB, Failure

MODEL_MIB = 1024
FRAMES = 600
# PyTorch sees the bytes written by another process, at the address of the file's memory.
SEES = r'''
import os, sys, torch, gpumem, view_model
path = sys.argv[1]
embedding = view_model.load(path)["embedding"]
view = gpumem.safetensors(path, "r+")["embedding"]
assert embedding.is_cuda and torch.cuda.memory_allocated() == 0, torch.cuda.memory_allocated()
before = embedding[7, 1].item()
with open(path, "r+b", buffering=0) as file:
    os.pwrite(file.fileno(), b"\0\0\x80\x44", view.offset + 7 * 4096 + 4)
print(before, embedding[7, 1].item())
'''


class Examples:
    """The folder of the examples, and the interpreter that runs them."""

    def __init__(self, machine):
        root = machine.tests.parent
        self.machine, self.folder = machine, root / "scripts" / "examples"
        self.python = os.environ.get("GPUMEM_PYTHON") or sys.executable
        package = next((p for p in (root / "client" / "python", root / "python") if (p / "gpumem").is_dir()), None)
        library = next((p for p in (machine.build / "libgpumem.so.0", machine.build / "lib" / "libgpumem.so.0")
                        if p.exists()), None)
        self.here = self.folder.is_dir() and package and library
        self.env = dict(machine.env, PYTHONPATH=f"{package}:{self.folder}", GPUMEM_LIBRARY=str(library),
                        PYTHONDONTWRITEBYTECODE="1", PATH=f"{machine.build}:{os.environ['PATH']}",
                        CUDA_DEVICE_ORDER="PCI_BUS_ID")
        self.torch = not machine.standin and not machine.run(
            [self.python, "-c", "import torch; torch.zeros(1, device='cuda')"], check=False, env=self.env).returncode

    def run(self, name, *words, **more):
        return self.machine.run([self.python, self.folder / name, *words], env=self.env, **more).stdout.strip()

    def start(self, *argv):
        self.machine.report.log("+ " + " ".join(map(str, argv)) + " &")
        return subprocess.Popen(list(map(str, argv)), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=self.machine.report.log_file, text=True)


def view(examples, machine, mount, model):
    before = machine.smi_memory(0, mount)["used"]
    said = examples.run("view_model.py", model, mount.gpu())
    machine.report.note(said)
    staged = mount.gpu() / model.name
    size = staged.stat().st_size
    machine.settles(lambda: abs(machine.smi_memory(0, mount)["used"] - before - size) <= 64 * MIB)
    grown = machine.smi_memory(0, mount)["used"] - before
    machine.report.check("view_model.py stages a model and views it", "begins 0 1 0" in said,
                         f"used memory grew by {grown / MIB:.0f} MiB for {size / MIB:.0f} MiB")
    if not examples.torch:
        machine.report.absent("PyTorch views it without a copy", f"{examples.python} has no torch with this GPU")
        return staged
    seen = machine.run([examples.python, "-c", SEES, staged], env=examples.env).stdout.split()
    machine.report.check("PyTorch views it without a copy: it has allocated nothing, and sees what write(2) changed",
                         seen[1] == "1024.0" and "torch.Tensor" in said, " became ".join(seen))
    return staged


def frames(examples, machine, mount):
    address, camera = mount.path / "host" / "camera.sock", mount.gpu() / "camera"
    producer = examples.start(machine.build / "examples" / "frame_producer", camera, address, FRAMES)
    try:
        if not machine.settles(lambda: address.exists() or producer.poll() is not None) or producer.poll() is not None:
            raise Failure(f"frame_producer: status {producer.poll()}")
        said = examples.run("frame_consumer.py", camera, address, check=False)
        left = producer.wait(20)
    finally:
        producer.kill()
        producer.stdout.close()
    how = "PyTorch on the GPU" if examples.torch else "Python through the BAR"
    machine.report.check(f"frames of 1920x1080 from C, looked at by {how}: none is missed or torn",
                         said.startswith(f"{FRAMES} frames, 0 missed, 0 torn") and left == 0, said)


def standby(examples, machine, mount, model):
    """Three servers, one after the other; the first two are killed."""
    address, servers, took = mount.path / "host" / "model.sock", [], []
    try:
        for _ in range(3):
            servers.append(examples.start(examples.python, examples.folder / "standby.py", "serve", model, address))
            if "stands by" not in servers[-1].stdout.readline():
                raise Failure(f"standby.py: status {servers[-1].wait()}")
        for _ in range(2):
            said = examples.run("standby.py", "drill", address, 7, check=False)
            took += re.findall(r"answered ([0-9.]+) ms later, the same$", said)
    finally:
        for server in servers:
            server.kill()
            server.wait()
            server.stdout.close()
    machine.report.check("of a warm-standby pair the second answers the same after kill -9 of the first",
                         len(took) == 2, "after " + " and ".join(f"{each} ms" for each in took))


def point_examples(machine):
    examples = Examples(machine)
    if not examples.here:
        machine.report.absent("the examples", "scripts/examples, the Python module or the library is not here")
        return
    model = machine.scratch / "example.safetensors"
    examples.run("make_model.py", model, 64 if machine.standin else MODEL_MIB)
    try:
        with machine.mount() as mount:
            mount.warm()
            staged = view(examples, machine, mount, model)
            frames(examples, machine, mount)
            standby(examples, machine, mount, staged)
    finally:
        model.unlink()
