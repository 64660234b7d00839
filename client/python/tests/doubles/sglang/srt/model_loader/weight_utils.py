# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A double of SGLang's function that reads weights to the CPU. Not SGLang's code."""

import os

import safetensors.torch

original = []  # lists of files that the double itself has read


def safetensors_weights_iterator(hf_weights_files, is_all_weights_sharded=False, decryption_key=None):
    original.append(hf_weights_files)
    for path in hf_weights_files:
        yield from safetensors.torch.load_file(path, device="cpu").items()


if os.environ.get("DOUBLE_SIGNATURE"):
    def safetensors_weights_iterator(files):  # noqa: F811
        return iter(files)
