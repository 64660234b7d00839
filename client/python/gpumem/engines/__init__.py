# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Inference engines that load their models from gpumemfs.

vLLM finds register_vllm() by its entry point and then knows the load format "gpumem":

    vllm serve /mnt/gpumem/gpu0/llama --load-format gpumem

See gpumem-python(3)."""

from __future__ import annotations

import logging

_logger = logging.getLogger("gpumem")


def register_vllm() -> None:
    """Registers the load format "gpumem". An exception here would end every start of vLLM, with any load format: a
    vLLM without register_model_loader() is logged instead."""
    try:
        from ._vllm import register
    except ImportError as error:
        _logger.warning("no load format gpumem in this vLLM: %s", error)
        return
    register()


__all__ = ["register_vllm"]
