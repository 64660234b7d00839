# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""load_file as safetensors 0.8 has it."""

from safetensors import safe_open


def load_file(filename, device="cpu", *, backend="mmap"):
    with safe_open(filename, framework="pt", device=device, backend=backend) as file:
        return file.get_tensors()
