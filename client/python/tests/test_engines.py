# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""gpumem.engines with a double of vLLM: the load format, and models that are wrong."""

import json
import os
import subprocess
import sys
import types
import unittest

from .support import PACKAGE, Case, entry, pack

try:
    import torch
    import gpumem.torch as gt
except ImportError:
    torch = None

DOUBLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "doubles")


def load_config(**options):
    return types.SimpleNamespace(load_format="gpumem", model_loader_extra_config=options)


@unittest.skipIf(torch is None, "no torch in this Python")
class Vllm(Case):
    def setUp(self):
        super().setUp()
        sys.path.insert(0, DOUBLES)
        self.addCleanup(sys.path.remove, DOUBLES)
        from gpumem.engines import register_vllm
        register_vllm()
        self.directory = self.folder / "simulated" / "llama"
        os.mkdir(self.directory)

    def model(self):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)

            def load_weights(self, weights):
                parameters, loaded = dict(self.named_parameters()), set()
                for name, tensor in weights:
                    parameters[name].data.copy_(tensor)
                    loaded.add(name)
                return loaded
        return Model()

    def save(self, tensors, index=None):
        """Two shards with an index, by the part of the model."""
        places = {name: f"{name.split('.')[0]}.safetensors" for name in tensors}
        for shard in set(places.values()):
            gt.save_file({name: tensor for name, tensor in tensors.items() if places[name] == shard},
                         self.directory / shard)
        with open(self.directory / "model.safetensors.index.json", "w", encoding="utf-8") as file:
            json.dump({"weight_map": {**places, **(index or {})}}, file)

    def load(self, model, quantization=None, **options):
        from vllm.model_executor.model_loader import get_model_loader
        config = types.SimpleNamespace(model=str(self.directory), quantization=quantization)
        loader = get_model_loader(load_config(**options))
        loader.download_model(config)
        loader.load_weights(model, config)

    def refused(self, kind, text, **options):
        model = self.model()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        with self.assertRaisesRegex(kind, text):
            self.load(model, **options)
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)

    def test_weights_arrive_in_every_mode(self):
        wanted = self.model().state_dict()
        self.save(wanted)
        for mode in ("auto", "view", "copy"):
            model = self.model()
            self.load(model, mode=mode)
            for name, tensor in model.state_dict().items():
                self.assertTrue(torch.equal(tensor, wanted[name]), (mode, name))

    def test_missing_shard_and_tensor(self):
        self.save(self.model().state_dict(), {"third.weight": "third.safetensors"})
        self.refused(FileNotFoundError, "third.weight.*third.safetensors")
        self.save(self.model().state_dict(), {"third.weight": "second.safetensors"})
        self.refused(gt.SafetensorError, "second.safetensors does not contain tensor 'third.weight'")

    def test_missing_parameter(self):
        self.save({name: tensor for name, tensor in self.model().state_dict().items() if name != "second.bias"})
        with self.assertRaisesRegex(ValueError, "no weights for 1 parameters, the first is 'second.bias'"):
            self.load(self.model())
        self.load(self.model(), quantization="fp8")

    def test_damaged_header_and_unknown_dtype(self):
        self.save(self.model().state_dict())
        (self.directory / "second.safetensors").write_bytes(b"\xff" * 64)
        self.refused(gt.SafetensorError, "second.safetensors")
        names = ("second.weight", "second.bias")
        header = {name: entry("F9", [1], i, i + 1) for i, name in enumerate(names)}
        (self.directory / "second.safetensors").write_bytes(pack(header, b"\0\0"))
        self.refused(gt.SafetensorError, "second.safetensors.*F9")

    def test_options(self):
        for options, text in (({"mode": "fast"}, "not 'fast'"), ({"modes": "copy"}, "modes"), ({"mode": []}, "mode")):
            self.refused(ValueError, text, **options)

    def test_not_a_directory(self):
        os.rmdir(self.directory)
        self.refused(ValueError, "needs the directory of a model")


class Without(Case):
    @unittest.skipIf(torch is None, "no torch in this Python")
    def test_other_vllm_starts(self):
        code = "import gpumem.engines; gpumem.engines.register_vllm()"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE)
        self.assertIn("no load format gpumem in this vLLM", said.stderr)

    def test_wheel_has_entry_point(self):
        code = "import sys, zipfile, backend; print(zipfile.ZipFile(sys.argv[1] + '/' + backend.build_wheel(sys.argv[1])" \
               ").read('gpumem-0.1.0.dist-info/entry_points.txt').decode())"
        said = subprocess.run([sys.executable, "-Bc", code, str(self.folder)], capture_output=True, text=True, check=True,
                              cwd=PACKAGE)
        self.assertIn("[vllm.general_plugins]\ngpumem = gpumem.engines:register_vllm\n", said.stdout)
