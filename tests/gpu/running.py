# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The point for gpumem run: transformers loads a model of the shape of Llama from tmpfs as it is, and from a GPU's files
under gpumem run, as views and as copies; safetensors loads the same file. Each load is in a fresh process (forked.py), and
its time is without the imports and the making of the CUDA context. The interpreter is GPUMEM_PYTHON's, with transformers."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

from forked import Server
from harness import GIB, MIB, median
from loading import COMMON, FFN, HIDDEN, KV, TIMES, Loading, numbers

MODULES = ("torch", "safetensors.torch", "transformers.models.llama.modeling_llama")
VIEW_BAR, COPY_BAR, COLD_BAR = 3, 2, 0.5
TOKEN_SECONDS, LOAD_SECONDS, SECOND_PROCESS = 1, 0.15, 64 * MIB

# Arguments: directory, layers, vocabulary. The head has the width of Llama's.
MAKE = COMMON + rf'''
from transformers import LlamaConfig, LlamaForCausalLM
layers, vocabulary = map(int, sys.argv[2:])
config = LlamaConfig(hidden_size={HIDDEN}, intermediate_size={FFN}, num_hidden_layers=layers, vocab_size=vocabulary,
                     num_attention_heads={HIDDEN // 128}, num_key_value_heads={KV // 128}, tie_word_embeddings=False,
                     bos_token_id=1, eos_token_id=2)
torch.manual_seed(7)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(config)
model.save_pretrained(sys.argv[1], max_shard_size="1000GB")
print(json.dumps({{"bytes": sum(tensor.nbytes for tensor in model.state_dict().values())}}))
'''
# Arguments: directory, and "hold" to stay until the process is killed. Prints the seconds of the load and until the
# first token, the memory of the GPU that the load took, what torch allocated, a sum of the logits' bits, and the seconds
# that 512 tokens take.
PRETRAINED = COMMON + r'''
from transformers import LlamaForCausalLM
free = torch.cuda.mem_get_info()[0]
start = time.perf_counter()
seconds, model = timed(LlamaForCausalLM.from_pretrained, sys.argv[1], dtype=torch.bfloat16, device_map="cuda")
taken, allocated = free - torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
with torch.inference_mode():
    logits = model(torch.arange(1, 33, device="cuda")[None]).logits
    token = int(logits[0, -1].argmax())
first = time.perf_counter() - start
with torch.inference_mode():
    tokens = torch.arange(1, 513, device="cuda")[None]
    forward = sorted(timed(model, tokens)[0] for _ in range(9))[4]
print(json.dumps({"seconds": seconds, "first": first, "taken": taken, "allocated": allocated, "forward": forward,
                  "token": token, "logits": int(logits.contiguous().view(torch.int16).sum(dtype=torch.int64))}), flush=True)
if sys.argv[2:]:
    time.sleep(600)
'''
LOAD_FILE = COMMON + r'''
from safetensors.torch import load_file
seconds, tensors = timed(load_file, sys.argv[1], device="cuda")
assert all(tensor.is_cuda for tensor in tensors.values())
print(json.dumps({"seconds": seconds}))
'''


class Running(Loading):
    """Processes under gpumem run, or as they are."""

    def __init__(self, machine):
        super().__init__(machine)
        self.plain = {name: value for name, value in machine.env.items() if not name.startswith("GPUMEM_")}
        self.command = next((str(p) for p in (machine.build / "bin" / "gpumem", machine.build / "gpumem") if p.exists()))

    def missing(self):
        reason = super().missing()
        if reason:
            return reason
        done = self.machine.run([self.python, "-c", "import transformers"], check=False, env=self.plain)
        return f"{self.python} has no transformers" if done.returncode else ""

    def words(self, mode):
        return [*([self.command, "run", f"--{mode}", "--"] if mode else []), self.python]

    @contextlib.contextmanager
    def served(self):
        """Runs programs in children of an interpreter for each mode, by the mode."""
        with contextlib.ExitStack() as stack:
            self.servers = {mode: stack.enter_context(Server(self.words(mode), MODULES, self.plain,
                                                             self.machine.scratch / f"errors.{mode}"))
                            for mode in (None, "view", "copy")}
            yield

    def result(self, mode, code, *words):
        result, errors = self.servers[mode].run(code, *words)
        said = [line for line in errors.splitlines() if line.startswith("gpumem run:")]
        return dict(result, said=" ".join(said))

    def held(self, mode, code, *words):
        """A process that stays, and its result."""
        process = subprocess.Popen([*self.words(mode), "-c", code, *map(str, words), "hold"], env=self.plain, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        line = process.stdout.readline()
        if not line:
            process.wait()
        return process, json.loads(line or '{"logits": null, "taken": 0}')


def pretrained(running, machine, source, staged):
    """The loads by transformers, in turns. The plain loads from the GPU follow: they leave the file's bytes in the page
    cache, which the next view has to wait for."""
    report = machine.report
    ways = {"tmpfs": (None, source), "view": ("view", staged), "copy": ("copy", staged)}
    loads = {name: [] for name in (*ways, "gpu0")}
    for mode, path in ways.values():
        running.result(mode, PRETRAINED, path)  # for its late imports
    for _ in range(TIMES):
        for name, (mode, path) in ways.items():
            loads[name].append(running.result(mode, PRETRAINED, path))
    loads["gpu0"] = [running.result(None, PRETRAINED, staged) for _ in range(TIMES)]
    took = {name: median([one["seconds"] for one in some]) for name, some in loads.items()}
    for name, some in loads.items():
        report.note(f"from_pretrained, {name}: {took[name]:.3f} s ({', '.join(format(one['seconds'], '.3f') for one in some)}), "
                    f"torch allocated {some[0]['allocated'] / MIB:.0f} MiB, 512 tokens take "
                    f"{median([one['forward'] for one in some]) * 1e3:.2f} ms; {some[-1]['said']}")
    for name, bar in (("view", VIEW_BAR), ("copy", COPY_BAR)):
        report.check(f"from_pretrained under gpumem run --{name}: {bar} times as fast as from tmpfs without it",
                     took["tmpfs"] >= bar * took[name], f"{took['tmpfs'] / took[name]:.2f}")
    report.check("the same logits in every way",
                 len({(one["logits"], one["token"]) for some in loads.values() for one in some}) == 1)
    report.note(f"the first view after plain loads: {running.result('view', PRETRAINED, staged)['seconds']:.3f} s")
    return took["tmpfs"], loads["tmpfs"][0]["logits"]


def restarted(running, machine, staged, logits):
    """A process that has the model is killed; a second process has the same memory, a third the killed one's."""
    first, had = running.held("view", PRETRAINED, staged)
    try:
        second = running.result("view", PRETRAINED, staged)
        machine.report.check(f"a second process: at most {SECOND_PROCESS // MIB} MiB more of the GPU's memory",
                             had["logits"] == logits and second["taken"] <= SECOND_PROCESS,
                             f"{second['taken'] / MIB:.0f} MiB, the first {had['taken'] / MIB:.0f} MiB")
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    runs = [running.result("view", PRETRAINED, staged) for _ in range(TIMES)]
    took = median([one["first"] for one in runs])
    machine.report.check(f"after a kill: {TOKEN_SECONDS} s from the start of the load to the first token",
                         took <= TOKEN_SECONDS and runs[0]["logits"] == logits, f"{took:.2f} s")


def file_loaded(running, machine, source, staged):
    took = {name: median([running.result(mode, LOAD_FILE, path / "model.safetensors")["seconds"] for _ in range(TIMES + 1)][1:])
            for name, mode, path in (("tmpfs", None, source), ("view", "view", staged), ("copy", "copy", staged))}
    machine.report.check(f'load_file(device="cuda") under gpumem run: {LOAD_SECONDS} s', took["view"] <= LOAD_SECONDS,
                         "; ".join(f"{name} {seconds:.3f} s" for name, seconds in took.items()))


def cold_start(running, machine, source, folder, tmpfs):
    """gpumem cp of the model out of the page cache, then from_pretrained."""
    totals, loaded = [], None
    for _ in range(TIMES):
        shutil.rmtree(folder, ignore_errors=True)
        start = time.monotonic()
        machine.run([running.command, "cp", "-r", source, folder], env=running.plain)
        copied = time.monotonic() - start
        loaded = running.result("view", PRETRAINED, folder)
        totals.append((copied + loaded["seconds"], copied))
    total, copied = median([one[0] for one in totals]), median([one[1] for one in totals])
    machine.report.check(f"gpumem cp, then from_pretrained: under {COLD_BAR} of from_pretrained from tmpfs",
                         total < COLD_BAR * tmpfs, f"{total / tmpfs:.2f}: {total:.2f} s, of it {copied:.2f} s the copy")
    machine.report.note(f"this file is as transformers saved it: 512 tokens take {loaded['forward'] * 1e3:.2f} ms; {loaded['said']}")


def point_running(machine):
    running = Running(machine)
    reason = running.missing()
    if reason:
        machine.report.absent("gpumem run", reason)
        return
    source = machine.scratch / "llama"
    layers, vocabulary, *_ = numbers(machine.size)
    try:
        with machine.mount() as mount, running.served():
            made = running.result(None, MAKE, source, layers, vocabulary)
            mount.warm()
            staged = mount.gpu() / source.name
            machine.run(["cp", "-r", source, staged])
            machine.report.note(machine.run([running.command, "align", staged / "model.safetensors"]).stdout.strip())
            os.setxattr(staged / "model.safetensors", "user.gpumem.share", b"trusted")
            machine.report.note(f"{made['bytes'] / GIB:.1f} GiB, {layers} layers")
            tmpfs, logits = pretrained(running, machine, source, staged)
            restarted(running, machine, staged, logits)
            file_loaded(running, machine, source, staged)
            shutil.rmtree(staged)
            cold_start(running, machine, source, staged, tmpfs)
    finally:
        shutil.rmtree(source, ignore_errors=True)
