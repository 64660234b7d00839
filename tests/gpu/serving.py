# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""vLLM: the engine's own processes start with a Llama from tmpfs and from gpu0/, by their own loader, under `gpumem run`,
and by the load format gpumem; each makes the same tokens and is killed. The interpreter is GPUMEM_PYTHON's, with vLLM,
which is not in the bundle."""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from harness import MIB, Failure, median, rounds
from loading import Loading, numbers
from running import MAKE

ROUNDS = rounds(2)  # a start takes half a minute
PATIENCE = 120  # for a start: the first one compiles kernels
TOLERATED = 64 * MIB  # of the GPU's memory, between two readings of nvidia-smi

# Arguments: directory, load format, its options. Prints the tokens, and stays until it is killed.
START = r"""
import json, sys, time
from vllm import LLM, SamplingParams
directory, load_format, options = sys.argv[1:]
engine = LLM(model=directory, load_format=load_format, model_loader_extra_config=json.loads(options), enforce_eager=True,
             skip_tokenizer_init=True, max_model_len=256, gpu_memory_utilization=0.3)
made = engine.generate({"prompt_token_ids": list(range(1, 33))}, use_tqdm=False,
                       sampling_params=SamplingParams(max_tokens=8, temperature=0, ignore_eos=True, detokenize=False))
print("tokens", *made[0].outputs[0].token_ids, flush=True)
time.sleep(600)
"""
LOADED = re.compile(r"Model loading took ([\d.]+) GiB(?: memory)? and ([\d.]+) seconds")


class Start:
    """A start of the engine, killed after its tokens: seconds of the whole and of the load, GiB that it took, the tokens,
    all as the engine says them."""

    def __init__(self, serving, words, directory, load_format, options):
        argv = [*map(str, words), serving.python, "-c", START, str(directory), load_format, json.dumps(options)]
        serving.machine.report.log("+ " + " ".join(argv[:-5] + argv[-3:]))
        begin = time.monotonic()
        with subprocess.Popen(argv, env=serving.env, text=True, errors="replace", stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
            watchdog = threading.Timer(PATIENCE, self.kill, [process])
            watchdog.start()
            said = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("tokens "):
                    break
            self.seconds = time.monotonic() - begin
            watchdog.cancel()
            self.kill(process)
        text = "".join(said)
        serving.machine.report.log(text)
        loaded = LOADED.search(text)
        if not loaded or not said[-1].startswith("tokens "):
            raise Failure(f"vLLM did not start: {' / '.join(line.strip() for line in said[-3:])}")
        self.gib, self.load = float(loaded[1]), float(loaded[2])
        self.tokens = said[-1].split()[1:]

    @staticmethod
    def kill(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class Serving(Loading):
    """The interpreter with vLLM, and the plugin as pip installs it."""

    def missing(self):
        reason = super().missing()
        if not reason and self.machine.run([self.python, "-c", "import vllm"], check=False).returncode:
            reason = f"{self.python} has no vLLM"
        return reason

    def install(self):
        site = self.machine.scratch / "site"
        self.machine.run([self.python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site,
                          self.machine.tests.parent / "client" / "python"])
        there = os.environ.get("PYTHONPATH")
        self.env = dict(self.env, PYTHONPATH=f"{site}:{there}" if there else str(site), HF_HUB_OFFLINE="1",
                        VLLM_NO_USAGE_STATS="1", VLLM_USE_FLASHINFER_SAMPLER="0")

    def make(self, size):
        """A model of about so many bytes."""
        directory = self.machine.scratch / "llama"
        directory.mkdir()
        self.run(MAKE, directory, *numbers(size)[:2])
        return directory


def measure(serving, ways):
    """The starts of each way, in turns."""
    starts = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            starts[name].append(Start(serving, *way))
    return starts


def show(report, starts):
    """The rows."""
    for name, some in starts.items():
        report.note(f"{name}: load " + " ".join(f"{one.load:.2f}" for one in some) + " s, start to tokens "
                    + " ".join(f"{one.seconds:.1f}" for one in some) + " s, model " + f"{some[-1].gib:.2f} GiB")
    loads = {name: median([one.load for one in some]) for name, some in starts.items()}
    for name in list(starts)[1:]:
        report.check(f"vLLM, {name}: no slower than its own loader from tmpfs", loads[name] <= loads["tmpfs"],
                     f"{loads[name]:.2f} s, {loads[name] / loads['tmpfs']:.2f} times")
    report.check("vLLM makes the same tokens from all of them",
                 len({tuple(one.tokens) for some in starts.values() for one in some}) == 1,
                 f"{sum(map(len, starts.values()))} starts, each killed")


def point_vllm(machine):
    """Entry."""
    serving = Serving(machine)
    reason = serving.missing()
    if reason:
        machine.report.absent("vLLM", reason)
        return
    serving.install()
    source = serving.make(machine.size * 3 // 8)
    with machine.mount("gpus=0") as mount:
        mount.warm()
        machine.run(["cp", "-r", source, mount.gpu()])
        there, processed = mount.gpu() / source.name, mount.gpu() / "processed"
        before = machine.smi_memory(0, mount)["used"]
        gpumem = [machine.build / "gpumem", "run", "--"]
        Start(serving, [], source, "auto", {})  # compiles its kernels
        measured = measure(serving, {
            "tmpfs": ([], source, "auto", {}), "gpu0": ([], there, "auto", {}),
            "gpu0 under gpumem run": (gpumem, there, "auto", {}), "format gpumem": ([], there, "gpumem", {}),
            "format gpumem, views": ([], there, "gpumem", {"mode": "view"}),
            "format gpumem, processed": ([], there, "gpumem", {"processed": str(processed), "mode": "view"})})
        show(machine.report, measured)
        machine.report.check("the engines' memory comes back, and the files stay",
                             machine.settles(lambda: machine.smi_memory(0, mount)["used"] <= before + TOLERATED
                                             + sum(file.stat().st_size for file in Path(processed).iterdir())),
                             f"{before >> 20} MiB before, {machine.smi_memory(0, mount)['used'] >> 20} MiB after")
