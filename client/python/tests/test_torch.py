# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""gpumem.torch with a real torch, on system memory and simulated GPUs: loading, saving, and files that are wrong."""

import copy
import io
import json
import os
import pickle
import subprocess
import sys
import unittest
import unittest.mock

from .support import PACKAGE, Case, entry, fake, gpumem, pack

try:
    import torch
    import gpumem.torch as gt
    from gpumem.torch import _file, _pool
except ImportError:
    torch = None

ALL = ("gpu0", "host", "simulated")  # torch for the CPU alone reads gpu0
MEMORY = ("host", "simulated")


def some():
    return {
        "a": torch.arange(6.0).reshape(2, 3),
        "b.weight": torch.arange(512).to(torch.bfloat16).reshape(8, 64),
        "scalar": torch.tensor(-3, dtype=torch.int64),
        "empty": torch.zeros(0, 4),
        "flags": torch.tensor([True, False, True]),
        "complex": torch.tensor([1 + 2j, 3 - 1j]),
    }


def storage(tensor):
    return tensor.storage().untyped() if not hasattr(tensor, "untyped_storage") else tensor.untyped_storage()


class WithoutTorch(Case):
    def test_gpumem_alone_imports_no_torch(self):
        code = "import gpumem, sys; print('torch' in sys.modules, 'gpumem.torch' in sys.modules)"
        said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=PACKAGE)
        self.assertEqual(said.stdout.split(), ["False", "False"])


@unittest.skipIf(torch is None, "no torch in this Python")
class TorchCase(Case):
    def setUp(self):
        super().setUp()
        _file._said = False

    def saved(self, folder="simulated", tensors=None, name="model.safetensors", **options):
        path = self.folder / folder / name
        gt.save_file(some() if tensors is None else tensors, path, **options)
        return path

    def same(self, got, wanted):
        self.assertEqual(sorted(got), sorted(wanted))
        for name, tensor in wanted.items():
            self.assertEqual((got[name].dtype, got[name].shape), (tensor.dtype, tensor.shape), name)
            self.assertTrue(torch.equal(got[name], tensor), name)

    def fails(self, kind, words, function, *arguments, **options):
        with self.assertRaises(kind) as raised:
            function(*arguments, **options)
        for word in words:
            self.assertIn(str(word), str(raised.exception))
        return raised.exception


class Loading(TorchCase):
    def test_every_folder_and_mode(self):
        for folder in (*ALL, "disk"):
            path = self.saved(folder) if folder != "disk" else self.file("disk", self.saved().read_bytes())
            for mode in ("auto", "copy") + ("view",) * (folder in MEMORY):
                self.same(gt.load_file(path, mode=mode), some())

    def test_views_are_the_file_and_copies_are_not(self):
        for folder in MEMORY:
            path = self.saved(folder)
            views, copies = gt.load_file(path, mode="view"), gt.load_file(path, mode="copy")
            self.assertEqual(fake("fake_leases"), 1)
            copies["a"].fill_(8)
            views["a"][1, 2] = 77
            self.assertEqual(gt.load_file(path)["a"].tolist(), [[0, 1, 2], [3, 4, 77]])
            one = views["scalar"]
            del views
            self.assertEqual((one.item(), fake("fake_leases")), (-3, 1))
            del one
            self.assertEqual(fake("fake_leases"), 0)

    def test_each_view_has_a_storage_of_its_own(self):
        """torch.save and safetensors' save_model take tensors that share a storage for tied weights."""
        views = gt.load_file(self.saved(), mode="view")
        for tensor in views.values():
            self.assertEqual(storage(tensor).nbytes(), tensor.nelement() * tensor.element_size())
            self.assertEqual(tensor.storage_offset(), 0)
        kept = io.BytesIO()
        torch.save(views["scalar"], kept)
        self.assertLess(len(kept.getvalue()), 2048)
        self.assertTrue(torch.equal(pickle.loads(pickle.dumps(views["a"])), some()["a"]))
        self.assertTrue(views["b.weight"].is_contiguous())

    def test_open_files_are_not_pickled(self):
        file = gt.safe_open(self.saved())
        for made in (file, file.get_slice("a")):
            for way in (pickle.dumps, copy.deepcopy):
                with self.assertRaisesRegex(TypeError, "open in this process"):
                    way(made)
        self.assertEqual(copy.copy(file).get_tensor("scalar").item(), -3)

    def test_pools_are_not_pickled(self):
        pool = _pool._pool_type(object)()
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            with self.assertRaisesRegex(TypeError, "pool_place"):
                way(pool)

    def test_a_parameter_keeps_the_file(self):
        path = self.saved()
        model = torch.nn.Linear(3, 2, bias=False)
        model.weight = torch.nn.Parameter(gt.load_file(path, mode="view")["a"])
        path.unlink()
        self.assertEqual(model(torch.ones(1, 3)).tolist(), [[3, 12]])

    def test_what_auto_chose_is_said_once(self):
        path = self.saved()
        with self.assertLogs("gpumem", "INFO") as logs:
            gt.load_file(path)
            gt.load_file(path)
        self.assertEqual(len(logs.output), 1)
        self.assertIn(f"{path}: mode 'auto': tensors are read", logs.output[0])

    def test_views_need_permission(self):
        path = self.saved()
        real = os.open

        def read_only(name, flags, *rest):
            if flags & os.O_ACCMODE != os.O_RDONLY:
                raise PermissionError(13, "Permission denied", name)
            return real(name, flags, *rest)
        with unittest.mock.patch("os.open", read_only):
            self.fails(PermissionError, [path, "trusted", "mode='copy'"], gt.load_file, path, mode="view")
            self.same(gt.load_file(path), some())

    def test_misaligned_tensors_are_copied(self):
        data = bytes(range(100))
        path = self.file("simulated", pack({"u": entry("U8", [1], 0, 1), "w": entry("I32", [3], 1, 13)}, data[:13]))
        for mode in ("view", "copy"):
            got = gt.load_file(path, mode=mode)
            self.assertEqual(got["w"].tolist(), [0x04030201, 0x08070605, 0x0c0b0a09])
            got["w"].fill_(0)
        self.assertEqual(path.read_bytes()[-13:], data[:13])

    def test_blocks(self):
        """Mode "copy" in a GPU's memory copies tensors together."""
        tensors = {f"t{n:02}": torch.full((100 + n,), n, dtype=torch.int32) for n in range(20)}
        tensors["odd"], tensors["after"] = torch.tensor([1, 2, 3], dtype=torch.uint8), torch.ones(5, dtype=torch.int8)
        path = self.saved(tensors=tensors)
        file = _file.File(path, "view")
        for block, count in ((1 << 30, 1), (1000, 7), (1, 22)):
            with unittest.mock.patch.object(_file, "BLOCK", block):
                self.assertEqual(len(_file._blocks(file.header.tensors)), count)
                self.same(file._load_blocks(file._share(), list(tensors)), tensors)
        some_names = ["t03", "t05", "t06"]
        self.same(file._load_blocks(file._share(), some_names), {name: tensors[name] for name in some_names})

    @unittest.skipUnless(hasattr(torch, "set_default_device"), "torch before 2.0 has no default device")
    def test_another_default_device(self):
        path = self.saved()
        for mode in ("auto", "view"):
            with torch.device("meta"):
                loaded = gt.load_file(path, mode=mode)
            self.same(loaded, some())

    def test_a_replaced_file(self):
        path = self.saved()
        for device in ("cpu", None):
            with gt.safe_open(path) as file:
                self.saved(tensors={"other": torch.ones(1)})
                self.assertEqual(file.get_slice("scalar").to_device(device).item(), -3)
            self.saved()

    def test_a_file_that_shrinks(self):
        path = self.saved("host")
        with gt.safe_open(path) as file:
            os.truncate(path, path.stat().st_size - 1)
            self.fails(gt.SafetensorError, [path, "'flags'", "ends"], file.get_tensor, "flags")
        path = self.saved("host")
        file = _file.File(path, "view")
        os.truncate(path, path.stat().st_size + 1)
        self.fails(gt.SafetensorError, [path, "changed its size"], file.own_device)

    def test_wrong_files(self):
        for content, word in ((b"", "8 bytes"), (b"\xff" * 20, ""), (pack("{", b""), ""),
                              (pack({"t": entry("F32", [2], 0, 4)}, bytes(4)), "t")):
            path = self.file(content=content)
            for function in (gt.load_file, gt.safe_open):
                self.fails(gt.SafetensorError, [path], function, path)
        missing = self.folder / "host" / "none"
        self.fails(FileNotFoundError, [missing], gt.load_file, missing)
        self.fails(ValueError, ["'fast'"], gt.load_file, missing, mode="fast")
        self.fails(ValueError, ["'gpu'"], gt.load_file, self.saved(), device="gpu")

    def test_a_dtype_that_torch_lacks(self):
        path = self.file(content=pack({"ok": entry("U8", [4], 0, 4), "six": entry("F6_E2M3", [8], 4, 10)}, bytes(10)))
        self.fails(gt.SafetensorError, [path, "'six'", "F6_E2M3"], gt.load_file, path)
        with gt.safe_open(path) as file:
            self.assertEqual(file.get_tensor("ok").tolist(), [0] * 4)
            self.assertEqual(file.get_slice("six").get_dtype(), "F6_E2M3")
            self.fails(gt.SafetensorError, [path, "'six'"], file.get_tensor, "six")

    def test_a_gpu_of_amd_that_cannot_be_mapped(self):
        """With torch for ROCm: a file of several chunks, or no HIP, is read."""
        path = self.file("vulkan", self.saved().read_bytes(), "model.safetensors")
        with unittest.mock.patch.object(torch.version, "hip", "6.2", create=True):
            for mode in ("auto", "copy"):
                got = gt.load_file(path, mode=mode)
                self.same(got, some())
                self.assertEqual({tensor.device.type for tensor in got.values()}, {"cpu"})
            self.fails(RuntimeError, [path.name, "memory"], gt.load_file, path, mode="view")

    def test_a_failed_lease(self):
        path = self.saved()
        with unittest.mock.patch.object(_file.FileMemory, "open_fd", side_effect=OSError(107, "no daemon", str(path))):
            failed = self.fails(OSError, [path, "no daemon"], gt.load_file, path)
        self.assertEqual(failed.errno, 107)


class Opening(TorchCase):
    def test_names_and_metadata(self):
        path = self.saved(metadata={"format": "pt", "ä": "ü"})
        with gt.safe_open(path, framework="pt", device="cpu", backend="pread") as file:
            self.assertEqual(file.keys(), sorted(some()))
            self.assertEqual(file.metadata(), {"format": "pt", "ä": "ü"})
            offsets = [file._file().entry(name).offset for name in file.offset_keys()]
            self.assertEqual((offsets, len(offsets)), (sorted(offsets), len(some())))
            self.same(file.get_tensors(), some())
            self.assertEqual(list(file.get_tensors()), file.offset_keys())
            self.assertEqual(fake("fake_leases"), 0)
            self.fails(gt.SafetensorError, [path, "'z'"], file.get_tensor, "z")
            self.fails(gt.SafetensorError, [path, "'z'"], file.get_slice, "z")
            part = file.get_slice("a")
        self.assertEqual(part[0].tolist(), [0, 1, 2])
        for function in (file.keys, file.metadata, lambda: file.get_tensor("a"), file.__enter__):
            self.fails(gt.SafetensorError, ["closed"], function)
        self.assertIsNone(gt.safe_open(self.saved()).metadata())

    def test_wrong_arguments(self):
        path = self.saved()
        self.fails(gt.SafetensorError, ["jax"], gt.safe_open, path, framework="jax")
        self.fails(gt.SafetensorError, ["dma"], gt.safe_open, path, backend="dma")
        self.fails(FileNotFoundError, ["none"], gt.safe_open, path.with_name("none"))

    def test_slices(self):
        tensors = {"w": torch.arange(5 * 6 * 7).reshape(5, 6, 7), "s": torch.tensor(4.0), "e": torch.zeros(0, 3)}
        indices = (..., 0, -1, slice(None), slice(1, 3), slice(-2, None), slice(3, 1), slice(0, 99), slice(None, None, 2),
                   (), (2,), (slice(1, 4), 3), (slice(2, 4), slice(None), slice(1, 6, 2)), (..., 2), (slice(1, 2), ..., 0),
                   None, (slice(1, 3), None), [0, 2], torch.tensor([1, 3]), (slice(1, 3), [0, 5]), True,
                   slice(True, None), "a", 1.5, 5, -6, (0, 0, 0, 0), (slice(0, 2), 9), slice(None, None, -1),
                   slice(None, None, 0), slice("a", None))
        for folder, mode in (("host", "auto"), ("simulated", "view"), ("host", "view")):
            path = self.saved(folder, tensors)
            file = gt.safe_open(path, mode=mode)
            for name, tensor in tensors.items():
                part = file.get_slice(name)
                self.assertEqual((part.get_shape(), part.get_dtype()),
                                 (list(tensor.shape), "I64" if name == "w" else "F32"))
                for index in indices:
                    try:
                        wanted = tensor[index]
                    except (IndexError, TypeError, ValueError) as error:
                        self.assertRaises(type(error), part.__getitem__, index)
                        continue
                    got = part[index]
                    self.assertEqual(got.shape, wanted.shape, (name, index))
                    self.assertTrue(torch.equal(got, wanted), (name, index))

    def test_a_slice_reads_its_rows_alone(self):
        file = gt.safe_open(self.saved(tensors={"w": torch.arange(6000).reshape(1000, 6)}))
        with unittest.mock.patch("gpumem.torch._tensors.read", side_effect=_file._tensors.read) as read:
            self.assertEqual(file.get_slice("w")[10:12, 1].tolist(), [61, 67])
        self.assertEqual(read.call_args[0][2], 2 * 6 * 8)

    def test_to_device(self):
        part = gt.safe_open(self.saved(), mode="view").get_slice("b.weight")
        self.assertEqual(part.to_device("cpu", torch.float32, (0, slice(0, 3))).tolist(), [0, 1, 2])
        self.assertEqual(part.to_device().dtype, torch.bfloat16)
        self.fails(ValueError, ["nowhere"], part.to_device, "nowhere")


class Models(TorchCase):
    def model(self):
        """Two files on two volumes, as links of one directory."""
        shards = {"one.safetensors": {"x.a": torch.ones(3), "x.b": torch.zeros(2)}, "two.safetensors": {"y": torch.arange(4)}}
        directory = self.folder / "simulated" / "model"
        directory.mkdir(exist_ok=True)
        gt.save_file(shards["one.safetensors"], directory / "one.safetensors")
        gt.save_file(shards["two.safetensors"], self.host / "two")
        if not (directory / "two.safetensors").is_symlink():
            (directory / "two.safetensors").symlink_to(self.host / "two")
        places = {name: shard for shard, tensors in shards.items() for name in tensors}
        self.index(directory, places)
        return directory, places, {name: tensor for tensors in shards.values() for name, tensor in tensors.items()}

    def index(self, directory, places):
        (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))

    def test_several_files(self):
        directory, places, tensors = self.model()
        for device_map in (None, "cpu", {"": "cpu"}, {"x": "cpu", "y": None}, {"x.a": "cpu", "x": "cpu", "": "cpu"}):
            for mode in ("auto", "view", "copy"):
                got = gt.load_model(directory, device_map, mode)
                self.same(got, tensors)
                self.assertEqual(list(got), list(places))
        self.fails(ValueError, ["'y'"], gt.load_model, directory, {"x": "cpu"})
        self.fails(ValueError, ["'fast'"], gt.load_model, directory, "fast")

    def test_one_file(self):
        self.same(gt.load_model(self.saved().parent), some())
        self.fails(FileNotFoundError, ["model.safetensors"], gt.load_model, self.gpu)

    def test_one_file_with_an_old_index(self):
        directory = self.saved().parent
        self.index(directory, {"a": "model-00001-of-00002.safetensors"})
        self.same(gt.load_model(directory), some())
        (directory / "model.safetensors").unlink()
        (directory / "model.safetensors").symlink_to("nowhere")
        self.fails(FileNotFoundError, ["model-00001-of-00002", "'a'"], gt.load_model, directory)

    def test_missing_shards_and_tensors(self):
        directory, places, _ = self.model()
        read = unittest.mock.patch("gpumem.torch._tensors.read", side_effect=AssertionError("loaded"))
        with read:
            self.index(directory, {**places, "lost": "three.safetensors"})
            self.fails(FileNotFoundError, ["three.safetensors", "'lost'"], gt.load_model, directory)
            self.index(directory, {**places, "lost": "one.safetensors"})
            self.fails(gt.SafetensorError, ["one.safetensors", "'lost'"], gt.load_model, directory)
            for shard in ("../model/one.safetensors", "/etc/passwd", "..", ""):
                self.index(directory, {**places, "out": shard})
                self.fails(gt.SafetensorError, ["'out'"], gt.load_model, directory)
            for text in ("", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"x": 1}}'):
                (directory / "model.safetensors.index.json").write_text(text)
                self.fails(gt.SafetensorError, ["index.json"], gt.load_model, directory)


class Sleeping(TorchCase):
    def test_all_files_of_the_process(self):
        views = gt.load_file(self.saved(name="views"), mode="view")
        other = gpumem.open(self.saved(name="other"), "r+")
        host = gpumem.open(self.saved("host", name="host"), "r+")
        private = gpumem.open(self.saved(name="private"), "r")
        address = views["a"].data_ptr()
        self.assertEqual(gt.sleep(), [private.path])
        self.assertEqual(fake("fake_parked_files"), 2)
        self.assertEqual(gt.sleep(), [private.path])
        gt.wake()
        gt.wake()
        self.assertEqual(fake("fake_parked_files"), 0)
        self.assertEqual(views["a"].data_ptr(), address)
        self.same(views, some())
        for buffer in (other, host, private):
            buffer.close()

    def test_a_file_that_was_changed(self):
        paths = [self.saved(name=name) for name in ("a", "b", "c")]
        buffers = [gpumem.open(path, "r+") for path in paths]
        gt.sleep()
        os.truncate(paths[1], 4096)
        self.fails(OSError, [paths[1], "changed"], gt.wake)
        self.assertEqual((fake("fake_parked_files"), buffers[1].size), (0, 4096))
        gt.sleep()
        os.truncate(paths[0], 0)
        self.fails(OSError, [paths[0], "emptied"], gt.wake)
        self.assertEqual(fake("fake_parked_files"), 1)
        self.fails(OSError, [paths[0], "emptied"], gt.wake)
        for buffer in buffers:
            buffer.close()


class Saving(TorchCase):
    def test_every_dtype(self):
        names = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
                 "complex64", "uint16", "uint32", "uint64")
        tensors = {name: torch.arange(6).to(getattr(torch, name)) for name in names if hasattr(torch, name)}
        for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2"):
            if hasattr(torch, name):
                tensors[name] = torch.arange(6, dtype=torch.uint8).view(getattr(torch, name))
        for folder in ALL:
            path = self.saved(folder, tensors)
            for mode in ("copy", "view")[:1 + (folder != "gpu0")]:
                got = gt.load_file(path, mode=mode)
                for name, tensor in tensors.items():
                    self.assertEqual(got[name].dtype, tensor.dtype)
                    self.assertTrue(torch.equal(got[name].view(torch.uint8), tensor.view(torch.uint8)), name)

    def test_alignment(self):
        tensors = {**some(), **{f"w{n}": torch.ones(64 * n, 2, dtype=torch.bfloat16) for n in range(1, 9)}}
        for alignment in (1, 8, 256, 4096, 1 << 20):
            path = self.saved(tensors=tensors, alignment=alignment)
            header = gt.safe_open(path)._file().header
            self.assertEqual(header.data_start % alignment, 0)
            self.assertEqual([name for name, tensor in header.tensors.items() if tensor.offset % tensor.dtype.alignment], [])
            if alignment == 256:
                self.assertEqual([name for name in tensors if name[0] == "w" and header.tensors[name].offset % 256], [])
            self.same(gt.load_file(path, mode="view"), tensors)
        for alignment in (0, 3, 2 << 20):
            self.fails(ValueError, [alignment], self.saved, alignment=alignment)

    def test_no_tensors(self):
        self.assertEqual(gt.load_file(self.saved(tensors={}, metadata={}), mode="view"), {})

    def test_what_safetensors_refuses(self):
        whole = torch.arange(12.0).reshape(3, 4)
        for kind, words, tensors in (
                (ValueError, ["dict"], [whole]),
                (ValueError, ["`t`"], {"t": 1}),
                (ValueError, ["'t'", "meta"], {"t": torch.empty(2, device="meta")}),
                (ValueError, ["__metadata__"], {"__metadata__": whole}),
                (ValueError, ["['t']", "sparse"], {"a": torch.ones(2), "t": torch.eye(3).to_sparse()}),
                (ValueError, ["`t`", "contiguous"], {"t": whole.t()}),
                (ValueError, ["'t'", "complex128"], {"t": torch.zeros(1, dtype=torch.complex128)}),
                (RuntimeError, ["'t'", "'u'", "share memory"], {"t": whole, "u": whole[1:]}),
                (RuntimeError, ["'t'", "'v'", "share memory"], {"t": whole, "u": torch.ones(2), "v": whole})):
            path = self.folder / "host" / "refused"
            self.fails(kind, words, gt.save_file, tensors, path)
            self.assertEqual(list(self.host.iterdir()), [])
        self.fails(TypeError, ["strings"], gt.save_file, {}, path, metadata={"a": 1})

    def test_parts_of_one_tensor_and_parameters(self):
        whole = torch.arange(12.0).reshape(3, 4)
        tensors = {"t": whole[:1], "u": whole[1:], "p": torch.nn.Parameter(torch.ones(2)), "c": torch.tensor([1j]).conj()}
        self.same(gt.load_file(self.saved(tensors=tensors)), tensors)

    def test_a_view_over_its_own_file(self):
        """The old file stays while a tensor uses the old memory."""
        path = self.saved()
        views = gt.load_file(path, mode="view")
        views["a"].fill_(5)
        gt.save_file(views, path)
        views["a"].fill_(6)
        self.assertEqual(gt.load_file(path)["a"][0, 0].item(), 5)

    def test_whole_or_not_at_all(self):
        path = self.saved("host")
        before = path.read_bytes()
        with unittest.mock.patch("gpumem.torch._tensors.synchronize", side_effect=RuntimeError("the GPU is gone")):
            self.fails(RuntimeError, ["gone"], gt.save_file, {"t": torch.ones(3)}, path)
        self.assertEqual((path.read_bytes(), os.listdir(self.host)), (before, [path.name]))
        with unittest.mock.patch.object(_file.FileMemory, "create", side_effect=OSError(28, "no room", str(path))):
            self.fails(OSError, ["no room", path], gt.save_file, {"t": torch.ones(3)}, path)
        self.assertEqual(path.read_bytes(), before)

    def test_elsewhere(self):
        path = self.folder / "disk" / "file"
        with unittest.mock.patch.dict(sys.modules, {"safetensors": None, "safetensors.torch": None}):
            self.fails(OSError, [path, "not on gpumemfs"], gt.save_file, some(), path)
        theirs = unittest.mock.Mock()
        with unittest.mock.patch.dict(sys.modules, {"safetensors": theirs, "safetensors.torch": theirs}):
            gt.save_file({}, path, {"a": "b"})
        theirs.save_file.assert_called_once_with({}, str(path), metadata={"a": "b"})

    def test_empty(self):
        for folder in MEMORY:
            path = self.folder / folder / "new"
            tensor = gt.empty(path, (2, 3), torch.int16)
            self.assertEqual((tensor.tolist(), path.stat().st_size), ([[0] * 3] * 2, 12))
            tensor[1, 0] = 0x2121
            self.assertEqual(path.read_bytes()[6:8], b"!!")
            self.fails(FileExistsError, [path], gt.empty, path, 4, exclusive=True)
            self.assertEqual((gt.empty(path, 4).dtype, gt.empty(path, (0, 3)).shape), (torch.float32, (0, 3)))
        self.fails(OSError, ["not on gpumemfs"], gt.empty, self.folder / "disk" / "new", 4)
        self.fails(RuntimeError, [self.gpu / "new", "CUDA"], gt.empty, self.gpu / "new", 4)
        self.assertEqual(list(self.gpu.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
