# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Files are opened for the CPU, and their tensors taken later."""

from safetensors import safe_open

from .core_model_loading import convert_and_load_state_dict_in_model

warmups = []


def caching_allocator_warmup(model, expanded_device_map, hf_quantizer):
    warmups.append(expanded_device_map)


class PreTrainedModel:
    @classmethod
    def from_pretrained(cls, files, device="cpu", dtype=None):
        return cls._load_pretrained_model(cls(), None, files, {"device": device, "dtype": dtype})

    @staticmethod
    def _load_pretrained_model(model, state_dict, checkpoint_files, load_config, expected_keys=None):
        caching_allocator_warmup(model, {"": load_config["device"]}, None)
        merged, pointers = {}, set()
        for file in checkpoint_files:
            pointer = safe_open(file, framework="pt", device="cpu", backend="mmap")
            pointers.add(pointer)
            for name in pointer.keys():
                merged[name] = pointer.get_slice(name)
        tensors = convert_and_load_state_dict_in_model(merged, **load_config)
        for pointer in pointers:
            pointer.__exit__(None, None, None)
        return tensors
