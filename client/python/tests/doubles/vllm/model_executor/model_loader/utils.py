# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Makes models, and calls the quantisation methods of their modules."""


def initialize_model(vllm_config, *, prefix="", model_config=None):
    return model_config.architecture()


def process_weights_after_loading(model, model_config, target_device):
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if method is not None:
            method.process_weights_after_loading(module)
