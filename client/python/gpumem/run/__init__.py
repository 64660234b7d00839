# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""What `gpumem run` changes in frameworks, so that they take files on a mount by gpumem.torch.

gpumem/hook/sitecustomize.py calls change() with each module of a framework after its import."""

from __future__ import annotations

from types import ModuleType

from . import _engines, _multiprocessing, _report, _safetensors, _transformers

_CHANGES = {
    "safetensors": _safetensors.change,
    "safetensors.torch": _safetensors.change_name,
    "sglang.srt.model_loader.weight_utils": _engines.change,
    "torch.multiprocessing.reductions": _multiprocessing.change,
    "transformers.modeling_utils": _transformers.change_modeling,
    "transformers.core_model_loading": _transformers.change_loading,
    "transformers.models.auto.auto_factory": _transformers.change_auto,
    "vllm.model_executor.model_loader.weight_utils": _engines.change,
}


def change(module: ModuleType) -> None:
    """Changes a module of a known framework, or says why the module is used as it is."""
    _report.start()
    _CHANGES[module.__name__](module)


__all__ = ["change"]
