#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""vllm_classes.py BUILD: vLLM's own classes, from PyPI, load a small Llama from a simulated GPU: with vLLM's format, with
the format gpumem in each mode, and with the option "processed", saved by one start and found by the next. All models have
the same bytes.

Run with a Python that has vLLM (pip install vllm; 10 GB): no GPU is needed, and no model computes. vLLM's classes for the
CPU take the place of those for a GPU, without their own packing of weights, as no GPU has that."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PLACE = "tcp://127.0.0.1:29511"


def make(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128)
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder, max_shard_size="2MB")


def on_the_cpu():
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform
    vllm.platforms.current_platform = CpuPlatform()
    import vllm.model_executor.layers.utils as layers
    layers.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: None


def digest(model):
    made = hashlib.sha256()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        made.update(name.encode())
        made.update(tensor.detach().contiguous().numpy().tobytes())
    return made.hexdigest()


def load(folder, load_format, options):
    on_the_cpu()
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model_loader
    import gpumem.engines
    gpumem.engines.register_vllm()
    config = EngineArgs(model=folder, load_format=load_format, model_loader_extra_config=json.loads(options),
                        dtype="float32", enforce_eager=True, skip_tokenizer_init=True,
                        max_model_len=128).create_engine_config()
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, PLACE, 0, "gloo")
        initialize_model_parallel(1, 1)
        loader = get_model_loader(config.load_config)
        model = loader.load_model(vllm_config=config, model_config=config.model_config)
    print("digest", type(loader).__name__, digest(model))


def in_process(build, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "client" / "python"), "VLLM_LOGGING_LEVEL": "WARNING",
                   "GPUMEM_LIBRARY": str(Path(build).resolve() / "libgpumem.so")}
    done = subprocess.run([sys.executable, __file__, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode or " is not saved" in done.stderr:
        sys.exit(f"{' '.join(arguments)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.split("digest ")[-1].split()


def check(build, folder):
    in_process(build, "make", str(folder / "model"))
    wanted = in_process(build, "load", str(folder / "model"), "safetensors", "{}")[1]
    processed = folder / "processed"
    cases = [{}, {"mode": "view"}, {"mode": "copy"}, {"processed": str(processed)}, {"processed": str(processed)},
             {"processed": str(processed), "mode": "view"}]
    for options in cases:
        loader, found = in_process(build, "load", str(folder / "model"), "gpumem", json.dumps(options))
        if found != wanted:
            sys.exit(f"{options}: the model has other bytes")
        print(f"ok   {loader} {json.dumps(options)}")
    if len(os.listdir(processed)) != 1:
        sys.exit(f"{processed}: {os.listdir(processed)}")


def main(build):
    with tempfile.TemporaryDirectory() as mount:
        subprocess.run([Path(build) / "gpumemfs", mount, "-o", "backend=host,host_size=1G"], check=True,
                       stderr=subprocess.DEVNULL)
        try:
            check(build, Path(mount) / "gpu0")
        finally:
            subprocess.run(["fusermount3", "-u", mount], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2])
    elif sys.argv[1:2] == ["load"]:
        load(*sys.argv[2:])
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit(__doc__)
