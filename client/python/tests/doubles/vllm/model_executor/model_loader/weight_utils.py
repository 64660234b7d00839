# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Reads weights to the CPU."""

from safetensors import safe_open

original = []  # lists of files that the double itself has read


def safetensors_weights_iterator(hf_weights_files, use_tqdm_on_load, safetensors_load_strategy="lazy",
                                 local_expert_ids=None):
    original.append(hf_weights_files)
    for path in hf_weights_files:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                yield name, file.get_tensor(name)
