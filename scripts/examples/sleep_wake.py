#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""sleep_wake.py MODEL [COMMAND...]: an engine that sleeps. The weights are MODEL, a safetensors file that view_model.py
has staged on a mount of gpumemfs, the cache is in a pool, and a step is a CUDA graph. The engine runs a step, gives the
GPU's memory back while COMMAND runs (without COMMAND: gpumem evict MODEL), takes the memory again, and replays the graph:
the result is the same, at the same addresses. Exit status 1: the result is another.

Needs PyTorch. On a simulated GPU there is neither a pool nor a graph."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import gpumem.torch
import torch


class Engine:
    """Multiplies an input by a layer of the model, and keeps the results of all steps in a cache."""

    def __init__(self, model):
        self.weights = gpumem.torch.load_file(model, mode="view")
        self.layer = self.weights["layers.0.weight"]
        cuda = self.layer.is_cuda
        if cuda:
            torch.cuda.set_device(self.layer.device)
        self.pool = gpumem.torch.pool(Path(model).parent) if cuda else None
        with torch.cuda.use_mem_pool(self.pool) if cuda else contextlib.nullcontext():
            self.input = torch.ones(self.layer.shape[1], dtype=torch.float32, device=self.layer.device)
            self.cache = torch.zeros(8, self.layer.shape[0], dtype=torch.float32, device=self.layer.device)
        self.run = self.capture() if cuda else self.step

    def step(self):
        self.cache[0] = self.layer.float() @ self.input
        self.cache[1:] = self.cache[:-1] * 0.5

    def capture(self):
        """Records the step as a graph, which has the addresses of weights, input and cache in it."""
        self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay

    def result(self, number):
        self.cache.zero_()
        self.input.fill_(number)
        self.run()
        return self.cache.cpu()


def main(model, *command):
    engine = Engine(model)
    before, address = engine.result(3), engine.layer.data_ptr()
    start = time.monotonic()
    stays = gpumem.torch.sleep()
    asleep = time.monotonic()
    subprocess.run(command or ["gpumem", "evict", model], check=True)
    woken = time.monotonic()
    gpumem.torch.wake()
    end = time.monotonic()
    after = engine.result(3)
    same = torch.equal(before, after) and engine.layer.data_ptr() == address
    how = "the graph replayed" if engine.pool else "the step run again"
    print(f"asleep after {(asleep - start) * 1000:.1f} ms, awake after {(end - woken) * 1000:.1f} ms; {how}: the result is "
          + ("the same" if same else "another") + (f"; not parked: {' '.join(stays)}" if stays else ""))
    return 0 if same and before.any() else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(*sys.argv[1:]))
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(f"sleep_wake.py: {error}")
