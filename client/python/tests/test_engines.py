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


class VllmCase(Case):
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


@unittest.skipIf(torch is None, "no torch in this Python")
class Vllm(VllmCase):
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


class Quantise:
    """As quantisation methods do: weights become tensors of other types, shapes and strides, and new tensors come."""

    processed = []  # the modules

    def __init__(self):
        self.scale = None

    def process_weights_after_loading(self, module):
        self.processed.append(module)
        scale = module.weight.detach().abs().max()
        packed = (module.weight.detach() / scale * 127).round().to(torch.int8)
        del module.weight
        module.weight = torch.nn.Parameter(packed.t(), requires_grad=False)
        module.weight_scale = torch.nn.Parameter(scale.reshape(1), requires_grad=False)
        module.register_buffer("table", torch.arange(7), persistent=False)
        module.zeros = packed[0]
        self.scale = scale.clone()


@unittest.skipIf(torch is None, "no torch in this Python")
class Processed(VllmCase):
    """The weights that the engine has processed, saved by one start and found by the next."""

    def setUp(self):
        super().setUp()
        self.processed = self.folder / "simulated" / "processed"

    def architecture(self, method=Quantise):
        model = self.model()
        if method is not None:
            model.first.quant_method = method()
        model.tied = torch.nn.Linear(3, 2)
        model.tied.weight = model.second.weight
        del model.tied.bias
        common = torch.nn.Module()
        common.register_buffer("table", torch.arange(5), persistent=False)
        model.first.common = model.second.common = common
        return model

    def start(self, directory=None, rank=0, engine="hash", method=Quantise, said=None, **options):
        from vllm.model_executor.model_loader import get_model_loader
        config = types.SimpleNamespace(
            model=str(self.directory), quantization="fp8", dtype=torch.float32, compute_hash=lambda: "model",
            architecture=lambda: self.architecture(method))
        load = load_config(processed=str(directory or self.processed), **options)
        load.device = None
        whole = types.SimpleNamespace(
            load_config=load, device_config=types.SimpleNamespace(device="cpu"), compute_hash=lambda: engine,
            parallel_config=types.SimpleNamespace(rank=rank, tensor_parallel_size=2, pipeline_parallel_size=1))
        if said is None:
            return get_model_loader(load).load_model(whole, config)
        with self.assertLogs("gpumem", "WARNING") as log:
            model = get_model_loader(load).load_model(whole, config)
        self.assertRegex(log.output[0], said)
        return model

    def calls(self, model):
        """How often the weights of a model were processed."""
        return Quantise.processed.count(model.first)

    def files(self):
        return sorted(os.listdir(self.processed)) if self.processed.exists() else []

    def assertSame(self, model, wanted):
        for name in ("first.weight", "first.weight_scale", "first.table", "first.zeros", "first.bias", "second.weight",
                     "first.quant_method.scale"):
            found, right = model, wanted
            for part in name.split("."):
                found, right = getattr(found, part), getattr(right, part)
            self.assertIs(type(found), type(right), name)
            self.assertEqual((found.dtype, found.shape, found.stride(), found.requires_grad),
                             (right.dtype, right.shape, right.stride(), right.requires_grad), name)
            self.assertTrue(torch.equal(found, right), name)
        self.assertIs(model.tied.weight, model.second.weight)
        self.assertIs(model.first.common, model.second.common)
        self.assertEqual(model.first.common.table.tolist(), list(range(5)))
        self.assertEqual([name for name, _ in model.named_parameters()], [name for name, _ in wanted.named_parameters()])
        self.assertNotIn("first.table", model.state_dict())
        self.assertFalse(model.training)

    def test_second_start_finds_them(self):
        self.save(self.model().state_dict())
        wanted = self.start()
        self.assertEqual((self.calls(wanted), len(self.files())), (1, 1))
        for mode in ("auto", "view", "copy"):
            model = self.start(mode=mode)
            self.assertEqual(self.calls(model), 0, "not processed again")
            self.assertSame(model, wanted)
        self.assertEqual(len(self.files()), 1)

    def test_views_are_the_file(self):
        self.save(self.model().state_dict())
        self.start()
        with torch.no_grad():
            self.start(mode="view").first.weight_scale.fill_(5)
        self.assertEqual(float(self.start(mode="copy").first.weight_scale), 5)

    def test_each_configuration_has_its_own(self):
        self.save(self.model().state_dict())
        self.start()
        for change in ({"rank": 1}, {"engine": "other"}):
            self.assertEqual(self.calls(self.start(**change)), 1, change)
        os.environ["VLLM_TEST"] = "1"
        self.addCleanup(os.environ.pop, "VLLM_TEST")
        self.assertEqual(self.calls(self.start()), 1)
        self.save(self.model().state_dict())
        self.assertEqual(self.calls(self.start()), 1, "other weights")
        self.assertEqual(len(self.files()), 5)

    def test_folder_by_rank(self):
        self.save(self.model().state_dict())
        self.start(f"{self.processed}{{rank}}", rank=3)
        self.assertEqual(len(os.listdir(f"{self.processed}3")), 1)
        with self.assertRaisesRegex(ValueError, "{rnk} stands for no number, only {rank}"):
            self.start(f"{self.processed}{{rnk}}", rank=3)

    def test_damaged_file_is_made_anew(self):
        self.save(self.model().state_dict())
        wanted = self.start()
        path = self.processed / self.files()[0]
        whole = path.read_bytes()
        def other(change):
            """The file with other metadata."""
            size = 8 + int.from_bytes(whole[:8], "little")
            header = json.loads(whole[8:size])
            described = json.loads(header["__metadata__"]["gpumem.processed"])
            change(described)
            header["__metadata__"]["gpumem.processed"] = json.dumps(described)
            return pack(header, whole[size:])

        def packed(**change):
            return other(lambda found: next(one for one in found["objects"] if one["dtype"] == "int8").update(change))
        for damage in (whole[:40], whole[:-1], packed(offset=1000), packed(offset=-1), packed(shape=[4, 300]),
                       packed(stride=["x"]), packed(dtype="Size"), packed(storage="none"),
                       other(lambda found: found["objects"].pop()),
                       other(lambda found: found["places"][0].__setitem__(0, "third")),
                       other(lambda found: found["places"][0].__setitem__(1, "module")),
                       other(lambda found: found["places"][0].__setitem__(2, "a.b")),
                       other(lambda found: found["places"][0].pop())):
            self.assertNotEqual(damage, whole)
            path.write_bytes(damage)
            model = self.start(said=f"{path.name} is not used, and is made anew")
            self.assertEqual(self.calls(model), 1)
            self.assertSame(model, wanted)
            self.assertSame(self.start(), wanted)

    def test_state_beside_tensors_is_not_saved(self):
        class Counts(Quantise):
            def process_weights_after_loading(self, module):
                super().process_weights_after_loading(module)
                module.columns = [1, 2]

        class Nested(Quantise):
            def process_weights_after_loading(self, module):
                super().process_weights_after_loading(module)
                self.kernels = {"one": torch.ones(1)}

        class Parameter(Quantise):
            def process_weights_after_loading(self, module):
                module.bias = type("Other", (torch.nn.Parameter,), {})(module.bias.data)
        for method, text in ((Counts, "columns of module 'first'"), (Nested, "quant_method.kernels of module 'first'"),
                             (Parameter, "parameter bias of module 'first'")):
            self.save(self.model().state_dict())
            for _ in range(2):
                model = self.start(method=method, said=f"is not saved.*{text}")
                self.assertTrue(torch.equal(model.second.weight, model.tied.weight))
            self.assertEqual(self.files(), [])

    def test_no_room(self):
        self.save(self.model().state_dict())
        self.processed.write_bytes(b"")
        self.start(said="is not saved")

    def test_options(self):
        for wrong in (7, "relative/folder"):
            with self.assertRaisesRegex(ValueError, "absolute path of a folder"):
                from vllm.model_executor.model_loader import get_model_loader
                get_model_loader(load_config(processed=wrong))


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
