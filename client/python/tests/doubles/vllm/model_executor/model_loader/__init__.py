# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Load formats by name."""

from abc import ABC, abstractmethod

import torch

from .utils import initialize_model, process_weights_after_loading

formats = {}


class BaseModelLoader(ABC):
    def __init__(self, load_config):
        self.load_config = load_config

    @abstractmethod
    def download_model(self, model_config):
        raise NotImplementedError

    @abstractmethod
    def load_weights(self, model, model_config):
        raise NotImplementedError

    def load_model(self, vllm_config, model_config, prefix=""):
        device = torch.device(vllm_config.load_config.device or vllm_config.device_config.device)
        model = initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
        self.load_weights(model, model_config)
        process_weights_after_loading(model, model_config, device)
        return model.eval()


def register_model_loader(load_format):
    def register(kind):
        if not issubclass(kind, BaseModelLoader):
            raise ValueError("The model loader must be a subclass of `BaseModelLoader`.")
        formats[load_format] = kind
        return kind
    return register


def get_model_loader(load_config):
    return formats[load_config.load_format](load_config)
