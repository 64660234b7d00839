# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Slices become tensors in threads."""

import os
from concurrent.futures import ThreadPoolExecutor

original = []  # slices that the double itself has made tensors of


def _materialize_copy(tensor, device=None, dtype=None):
    original.append(tensor)
    tensor = tensor[...]
    if dtype is not None or device is not None:
        tensor = tensor.to(device=device, dtype=dtype)
    return tensor


if os.environ.get("DOUBLE_SIGNATURE"):
    def _materialize_copy(tensor, place):  # noqa: F811
        return tensor[...].to(place)


def convert_and_load_state_dict_in_model(state_dict, device, dtype):
    with ThreadPoolExecutor(4) as pool:
        jobs = {name: pool.submit(lambda part: _materialize_copy(part, device, dtype), part)
                for name, part in state_dict.items()}
        return {name: job.result() for name, job in jobs.items()}
