#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""view_model.py MODEL [DIRECTORY]: stages a safetensors file in DIRECTORY, which is on a mount of gpumemfs, and
views its tensors there without a copy. Without DIRECTORY, MODEL is on the mount already: nothing is staged, and any
number of processes view the same memory.

Tensors on a GPU become PyTorch tensors; tensors in system memory (host/, and simulated GPUs) become numpy arrays.
Without these modules a tensor becomes a memoryview."""

import os
import subprocess
import sys
import time
from pathlib import Path

import gpumem

try:
    import torch
except ImportError:
    torch = None
try:
    import numpy
except ImportError:
    numpy = None

FORMATS = {"float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "int8": "b",
           "uint8": "B"}
MIB = 1 << 20


def stage(model, directory):
    """Copies the file. If tensors are not aligned for views, pads the header on the GPU."""
    target = Path(directory) / Path(model).name
    subprocess.run(["gpumem", "cp", model, target], check=True)
    if gpumem.safetensors(target, "r+").misaligned:
        gpumem.align(target, f"{target}.aligned", 256)
        os.replace(f"{target}.aligned", target)
    return target


def take(view):
    """A view as an array of an installed module, without a copy."""
    on_gpu = view.__dlpack_device__()[0] != 1
    if on_gpu and torch and torch.cuda.is_available():  # torch may be built for CPUs alone
        return torch.from_dlpack(view)
    if not on_gpu and numpy:
        form = FORMATS.get(view.dtype, "B")  # bfloat16 and FP8 are no types of numpy's: their bytes
        flat = numpy.asarray(view.view("uint8")).view(form)
        return flat.reshape(view.shape) if view.dtype in FORMATS else flat
    form = FORMATS.get(view.dtype, "B").replace("e", "B")  # a memoryview has no float16 either
    return view.memory.cast(form, view.shape) if form != "B" and view.nbytes and view.shape else view.memory


def load(path):
    """The tensors of a model on a mount by name. "r+" gives the memory itself; "r" gives the memory if user.gpumem.share
    is "trusted", and else a private copy made on the GPU."""
    return {name: take(view) for name, view in gpumem.safetensors(path, "r+", on_misaligned="copy").items()}


def first(array, count=3):
    """The first numbers of a tensor."""
    if isinstance(array, memoryview):
        flat = array.cast("B").cast(array.format)
        return flat[:count].tolist()
    return array.reshape(-1)[:count].tolist()


def main(model, directory=None):
    if directory:
        start = time.monotonic()
        model = stage(model, directory)
        print(f"staged {model}: {model.stat().st_size / MIB:.1f} MiB in {time.monotonic() - start:.2f} s")
    start = time.monotonic()
    tensors = load(model)
    print(f"{len(tensors)} tensors in {(time.monotonic() - start) * 1000:.1f} ms")
    for name, array in tensors.items():
        kind = type(array)
        print(f"{name:20} {kind.__module__}.{kind.__name__} {list(array.shape)} begins "
              + " ".join(f"{number:.6g}" for number in first(array)))
    if torch and torch.cuda.is_available():
        print(f"PyTorch has allocated {torch.cuda.memory_allocated()} bytes of the GPU")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
