# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Load formats by name."""

from abc import ABC, abstractmethod

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


def register_model_loader(load_format):
    def register(kind):
        if not issubclass(kind, BaseModelLoader):
            raise ValueError("The model loader must be a subclass of `BaseModelLoader`.")
        formats[load_format] = kind
        return kind
    return register


def get_model_loader(load_config):
    return formats[load_config.load_format](load_config)
