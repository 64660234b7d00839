# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""llama.cpp as Debian ships it, with its Vulkan backend, and, where GPUMEM_LLAMA_CUDA is a folder with its programs, with
its CUDA backend: whole processes of llama-bench that load a model from tmpfs, from gpu0/, and from gpu0/ with the preload
library and under `gpumem run`, in each of its load modes. llama-completion must write the same text from each place."""

import os
import shutil
import sys
import time
from pathlib import Path

from harness import MIB, Failure, TookTooLong, median, rounds
from preload import library_of, preloaded

ROUNDS = rounds(5)
WIDTH, HIDDEN = 4096, 14336  # of a model with 7 thousand million parameters
LAYER_BYTES = 2 * (4 * WIDTH * WIDTH + 3 * WIDTH * HIDDEN)
MODES = "none", "mmap", "dio"
# From tmpfs a process takes 1 to 2 s: a slower way is not repeated.
LIMIT_SECONDS = 30
# Of the time from tmpfs.
BARS = {"gpu0": {"none": 1.0, "mmap": 1.1, "dio": 1.0}, "preload": {"none": 1.0, "mmap": 0.9, "dio": 1.0},
        "gpumem run": {"none": 1.0, "mmap": 0.9, "dio": 1.0}}


class Engine:
    """llama.cpp for one backend. words precede the path of a program."""

    def __init__(self, machine, name, words, programs, folder):
        self.machine, self.name, self.words, self.programs, self.folder = machine, name, words, programs, folder

    def run(self, program, path, mode, way, *words):
        before, env = way
        return self.machine.run([*before, *self.words, self.programs / program, "-m", path, "-lm", mode, "-ngl", "99",
                                 *words], env=env, timeout=LIMIT_SECONDS, cwd=self.folder)

    def seconds(self, path, mode, way):
        """Of a whole process."""
        begin = time.monotonic()
        done = self.run("llama-bench", path, mode, way, "-p", "4", "-n", "1", "-r", "1", "-o", "jsonl")
        if '"n_gpu_layers": 99' not in done.stdout or self.name not in done.stdout:
            raise Failure("the engine does not use the GPU")
        return time.monotonic() - begin

    def text(self, path, mode, way):
        """What the engine writes with the model."""
        return self.run("llama-completion", path, mode, way, "-p", "The weights", "-n", "16", "-s", "1", "--temp", "0",
                        "-no-cnv", "--no-warmup").stdout


def measure(engine, mode, ways):
    """All seconds of each way, in turns. A way that took too long has no more turns, and an endless time."""
    seconds = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (path, way) in ways.items():
            if float("inf") in seconds[name]:
                continue
            try:
                seconds[name].append(engine.seconds(path, mode, way))
            except TookTooLong:
                seconds[name].append(float("inf"))
    return seconds


def engine_of_debian(machine):
    """In the bundle, with a loader and libraries of its own. It finds its backends in the working folder."""
    there = machine.build / "engines"
    loader = [there / "lib" / "ld-linux-x86-64.so.2", "--library-path",
              f"{there / 'lib'}:{machine.build / 'lib'}:/usr/lib/x86_64-linux-gnu"]
    return Engine(machine, "Vulkan", loader, there / "bin", there / "backends")


def engines_of(machine):
    engines = [engine_of_debian(machine)]
    if "GPUMEM_LLAMA_CUDA" in os.environ:
        there = Path(os.environ["GPUMEM_LLAMA_CUDA"])
        engines.append(Engine(machine, "CUDA", [], there, there))
    else:
        machine.report.absent("llama.cpp, CUDA", "needs GPUMEM_LLAMA_CUDA")
    return engines


def make_model(machine, path, layers):
    """Needs numpy."""
    folder = machine.build / "engines"
    machine.run([sys.executable, folder / "model.py", path, layers, WIDTH, HIDDEN],
                env=dict(machine.env, PYTHONPATH=str(folder / "python")))


def show(report, what, mode, seconds):
    """The rows of one load mode."""
    report.note(f"{what}: " + "; ".join(f"{name} " + " ".join(f"{one:.2f}" for one in some)
                                        for name, some in seconds.items()))
    medians = {name: float("inf") if float("inf") in some else median(some) for name, some in seconds.items()}
    for name, bars in BARS.items():
        ratio = medians[name] / medians["tmpfs"]
        report.check(f"{what}, {name}: at most {bars[mode]} times the time from tmpfs", ratio <= bars[mode],
                     f"{medians[name]:.2f} s, {ratio:.2f} times" if ratio < float("inf")
                     else f"more than {LIMIT_SECONDS} s, tmpfs {medians['tmpfs']:.2f} s")


def compare(report, engine, ways):
    """The rows of one engine."""
    wanted = engine.text(ways["tmpfs"][0], "none", ways["tmpfs"][1])
    for mode in MODES:
        what = f"llama.cpp, {engine.name}, {mode}"
        report.check(f"{what}: the same text from gpu0/ as from tmpfs", engine.text(ways["gpu0"][0], mode, ways["gpu0"][1]) == wanted)
        show(report, what, mode, measure(engine, mode, ways))


def point_engines(machine):
    """Entry."""
    report, library = machine.report, library_of(machine)
    if machine.standin or not library or not (machine.build / "engines").is_dir():
        report.absent("llama.cpp", "needs a GPU, the preload library, and `make check-engines` before `make bundle`")
        return
    layers = max(1, machine.size * 3 // 8 // LAYER_BYTES)
    with machine.mount("gpus=0") as mount:
        mount.warm()
        there, file = machine.scratch / "model.gguf", mount.gpu() / "model.gguf"
        make_model(machine, there, layers)
        shutil.copyfile(there, file)
        report.note(f"a Llama of {there.stat().st_size // MIB} MiB, all layers on the GPU; whole processes of llama-bench, "
                    f"{ROUNDS} in turns")
        plain = [], machine.env
        ways = {"tmpfs": (there, plain), "gpu0": (file, plain), "preload": (file, ([], preloaded(machine, library))),
                "gpumem run": (file, ([machine.build / "gpumem", "run", "--"], machine.env))}
        for engine in engines_of(machine):
            compare(report, engine, ways)
        there.unlink()
