# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""vLLM's load format "gpumem". vLLM's own load_model() calls load_weights(), and then processes the weights; with the
option "processed" the loader saves what came of that, and the next load takes it in place of both."""

from __future__ import annotations

import logging
import os
from typing import Any, Optional

import torch
import vllm
from vllm.model_executor.model_loader import BaseModelLoader, register_model_loader

from .. import _placeholders
from ..torch._errors import SafetensorError
from . import _processed, _weights
from ._state import State

FORMAT = "gpumem"

_logger = logging.getLogger("gpumem")


def _directory(model_config: Any) -> str:
    return _weights.check_directory(getattr(model_config, "model_weights", None) or model_config.model)


def _check_loaded(model: Any, loaded: Any, directory: str) -> None:
    """Models that say what they loaded must have loaded every parameter. Quantised models make parameters later."""
    missing = sorted({name for name, _ in model.named_parameters()} - set(loaded))
    if missing:
        raise ValueError(f"{directory} has no weights for {len(missing)} parameters, the first is {missing[0]!r}")


def _configuration(vllm_config: Any, model_config: Any, prefix: str, device: torch.device) -> dict[str, Any]:
    """Everything that the processed weights depend on, except for the model's files."""
    parallel = vllm_config.parallel_config
    gpu = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    return {"versions": [vllm.__version__, torch.__version__, torch.version.cuda], "prefix": prefix,
            "gpu": None if gpu is None else [gpu.name, gpu.major, gpu.minor],
            "engine": vllm_config.compute_hash(), "model": model_config.compute_hash(),
            "dtype": str(model_config.dtype), "quantization": str(model_config.quantization),
            "rank": parallel.rank, "ranks": [parallel.tensor_parallel_size, parallel.pipeline_parallel_size],
            "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith("VLLM_")}}


def _device(vllm_config: Any) -> torch.device:
    return torch.device(vllm_config.load_config.device or vllm_config.device_config.device)


class _Made(Exception):
    """Ends vLLM's load_model() where the model is made and has no weights yet."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model


class Loader(BaseModelLoader):  # type: ignore[misc]
    """Views or copies of the files of a model's directory, made by their GPU."""

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        self._options = _weights.options_of(load_config.model_loader_extra_config)
        self._before: Optional[State] = None
        self._is_making = False

    def download_model(self, model_config: Any) -> None:
        _directory(model_config)

    def load_weights(self, model: Any, model_config: Any) -> None:
        if self._is_making:
            raise _Made(model)
        directory = _directory(model_config)
        if getattr(model, "secondary_weights", ()):
            raise ValueError(f"{directory}: this model has weights outside its directory: use another load format")
        if self._options.processed is not None:
            self._before = State(model)
        loaded = model.load_weights(_weights.weights(directory, self._options.mode))
        if loaded is not None and getattr(model_config, "quantization", None) is None:
            _check_loaded(model, loaded, directory)

    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> torch.nn.Module:
        model: torch.nn.Module
        if self._options.processed is None:
            model = super().load_model(vllm_config, model_config, prefix)
            return model
        folder = _placeholders.fill(self._options.processed, rank=vllm_config.parallel_config.rank)
        configuration = _configuration(vllm_config, model_config, prefix, _device(vllm_config))
        path = os.path.join(folder, _processed.key_of(configuration, _directory(model_config)) + ".safetensors")
        if os.path.exists(path):
            try:
                weights = _processed.Weights(path, self._options.mode)
                model = self._make(vllm_config, model_config, prefix)
                weights.install(model)
                return model.eval()
            except (OSError, SafetensorError) as error:
                _logger.warning("%s is not used, and is made anew: %s", path, error)
        model = super().load_model(vllm_config, model_config, prefix)
        self._save(path, model)
        return model

    def _make(self, vllm_config: Any, model_config: Any, prefix: str) -> torch.nn.Module:
        self._is_making = True
        try:
            super().load_model(vllm_config, model_config, prefix)
        except _Made as made:
            return made.model
        finally:
            self._is_making = False
        raise RuntimeError("this vLLM's load_model() makes no call of load_weights()")

    def _save(self, path: str, model: torch.nn.Module) -> None:
        """The engine starts without the file too."""
        before, self._before = self._before, None
        try:
            if before is not None:
                _processed.save(path, before, model)
        except (_processed.Unsaveable, OSError, RuntimeError, ValueError) as error:
            _logger.warning("%s is not saved, and each start processes the weights: %s", path, error)


def register() -> None:
    register_model_loader(FORMAT)(Loader)
