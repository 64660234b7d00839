#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A trainer and a reader that share versions of a model in a GPU's memory (docs/versions.md):

    publish.py train SET [STEPS]     trains, and publishes a version after each step
    publish.py serve SET [STEPS]     computes with the current version, and changes to the next between two steps

SET is a directory on a mount, such as /mnt/gpumem/gpu0/policy. Start both in any order, as different processes, in
different containers, or as different users after `gpumem set SET share=trusted`."""

import pathlib
import sys
import time

import gpumem.torch
import torch


def model_make():
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))


def train(directory, steps):
    versions = gpumem.torch.Versions(directory)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model_make().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        batch = torch.randn(64, 256, device=device)
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with versions.new(like=model) as new:
            new.copy_(model)
        print(f"published {versions.current}: loss {loss.item():.3f}", flush=True)


def serve(directory, steps):
    versions = gpumem.torch.Versions(directory)
    while versions.current is None:
        time.sleep(0.1)
    model = versions.load(model_make())
    device = next(model.parameters()).device
    with torch.no_grad():
        for _ in range(steps):
            name = versions.step()
            print(f"version {name}: {model(torch.ones(1, 256, device=device)).item():.3f}", flush=True)
            time.sleep(0.01)


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in ("train", "serve"):
        sys.exit(__doc__)
    pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    {"train": train, "serve": serve}[sys.argv[1]](sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else 100)


main()
