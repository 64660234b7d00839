# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""vLLM's load format "gpumem". vLLM's own load_model() calls load_weights(), and then processes the weights."""

from __future__ import annotations

from typing import Any

from vllm.model_executor.model_loader import BaseModelLoader, register_model_loader

from . import _weights

FORMAT = "gpumem"


def _directory(model_config: Any) -> str:
    return _weights.check_directory(getattr(model_config, "model_weights", None) or model_config.model)


def _check_loaded(model: Any, loaded: Any, directory: str) -> None:
    """Models that say what they loaded must have loaded every parameter. Quantised models make parameters later."""
    missing = sorted({name for name, _ in model.named_parameters()} - set(loaded))
    if missing:
        raise ValueError(f"{directory} has no weights for {len(missing)} parameters, the first is {missing[0]!r}")


class Loader(BaseModelLoader):  # type: ignore[misc]
    """Views or copies of the files of a model's directory, made by their GPU."""

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        self._mode = _weights.mode_of(load_config.model_loader_extra_config)

    def download_model(self, model_config: Any) -> None:
        _directory(model_config)

    def load_weights(self, model: Any, model_config: Any) -> None:
        directory = _directory(model_config)
        if getattr(model, "secondary_weights", ()):
            raise ValueError(f"{directory}: this model has weights outside its directory: use another load format")
        loaded = model.load_weights(_weights.weights(directory, self._mode))
        if loaded is not None and getattr(model_config, "quantization", None) is None:
            _check_loaded(model, loaded, directory)


def register() -> None:
    register_model_loader(FORMAT)(Loader)
