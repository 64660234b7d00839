# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The hook of `gpumem run`, in processes as the command starts them, with doubles of safetensors and transformers."""

import importlib.util
import json
import os
import struct
import subprocess
import sys
import unittest

from .support import PACKAGE, Case, entry, pack

HOOK = PACKAGE / "gpumem" / "hook"
DOUBLES = PACKAGE / "tests" / "doubles"
HAS_TORCH = importlib.util.find_spec("torch") is not None

# Folders of the simulated library count as mounts.
MOUNTS = """
from gpumem.run import _mounts
def device_at(path):
    kinds = {"gpu0": "GPU-1", "simulated": "GPU-2", "host": "host"}
    return next((kinds[part] for part in (path or "").split("/") if part in kinds), None)
_mounts.device_at = device_at
"""


class RunCase(Case):
    def python(self, code, *arguments, run="auto", path=(), status=0, **environment):
        """Runs code with the hook; returns its lines of stdout and of stderr."""
        folders = [HOOK, *path, DOUBLES]
        environment = {**os.environ, "PYTHONPATH": ":".join(map(str, folders)), "PYTHONDONTWRITEBYTECODE": "1",
                       **environment}
        environment.pop("GPUMEM_RUN", None)
        if run is not None:
            environment["GPUMEM_RUN"] = run
        done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True,
                              check=False, env=environment, cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout.splitlines(), done.stderr.splitlines()

    def model(self, folder="simulated", name="model.safetensors"):
        header = {"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 2], 0, 16), "b": entry("F32", [1], 16, 20)}
        pad = -len(json.dumps(header)) % 8
        return self.file(folder, pack(header, struct.pack("<5f", *range(5)), pad), name)

    def user(self, code):
        folder = self.folder / "user"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(code)
        return folder


class Start(RunCase):
    KIND = "import safetensors; print(type(safetensors.safe_open).__name__)"

    def test_nothing_is_imported(self):
        code = "import sys; print([m for m in sys.modules if m.split('.')[0] in ('gpumem', 'torch', 'ctypes')])"
        self.assertEqual(self.python(code), (["[]"], []))

    def test_gpumem_is_importable_and_last(self):
        out, _ = self.python("import gpumem, sys; print(gpumem.__file__, sys.path[-1])")
        self.assertEqual(out[0].split(), [str(PACKAGE / "gpumem" / "__init__.py"), str(PACKAGE)])
        mine = self.folder / "mine" / "gpumem"
        mine.mkdir(parents=True)
        (mine / "__init__.py").write_text("")
        out, _ = self.python("import gpumem, sys; print(gpumem.__file__)", path=[mine.parent])
        self.assertEqual(out, [str(mine / "__init__.py")])

    def test_the_users_own_module(self):
        user = self.user("import sys; print('user', __name__); value = 7")
        for run in ("auto", None, "nonsense"):
            out, _ = self.python("import sitecustomize; print(sitecustomize.value, sitecustomize.__file__)", run=run,
                                 path=[user])
            self.assertEqual(out, ["user sitecustomize", f"7 {user}/sitecustomize.py"])

    def test_the_users_module_fails(self):
        user = self.user("raise RuntimeError('broken')")
        with_hook = self.python("print('on')", path=[user])
        self.assertEqual(with_hook[0], ["on"])
        self.assertIn("RuntimeError: broken", with_hook[1])

    def test_two_hooks(self):
        other = self.folder / "other" / "gpumem" / "hook"
        other.mkdir(parents=True)
        (other / "sitecustomize.py").write_text((HOOK / "sitecustomize.py").read_text())
        out, errors = self.python("import sys; print([type(f).__name__ for f in sys.meta_path].count('_GpumemFinder'))",
                                  path=[other, self.user("print('user')")])
        self.assertEqual((out, errors), (["user", "1"], []))

    def test_wrong_values(self):
        for value in ("", "fast", "auto,", "auto,stats,stats", "view,all"):
            out, errors = self.python("import safetensors; print(type(safetensors.safe_open).__name__)", run=value)
            self.assertEqual(out, ["type"])
            self.assertEqual(errors, [f"gpumem run: GPUMEM_RUN is 'auto', 'view' or 'copy', with ',stats' or without, "
                                      f"not {value!r}"])
        self.assertEqual(self.python("import safetensors; print(type(safetensors.safe_open).__name__)", run=None),
                         (["type"], []))

    def test_a_set_id_process(self):
        code = ("import os, runpy, sys\n"
                "sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != '_GpumemFinder']\n"
                "setattr(os, sys.argv[2], lambda: 12345)\n"
                "runpy.run_path(sys.argv[1])\n"
                "print(any('Gpumem' in type(f).__name__ for f in sys.meta_path))")
        for call in ("geteuid", "getegid", "getpid"):
            out, _ = self.python(code, HOOK / "sitecustomize.py", call)
            self.assertEqual(out, [str(call == "getpid")])

    def test_a_closed_stderr(self):
        done = subprocess.run(f"exec {sys.executable} -c 'print(1)' 2>&-", shell=True, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(HOOK), "GPUMEM_RUN": "auto,stats"}, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "1\n"))

    def test_no_file(self):
        out, errors = self.python("", run="view,stats")
        self.assertRegex("\n".join(errors), r"^gpumem run: no framework loaded a file of a mount \(python[0-9.]*, pid \d+\)$")

    def test_a_failure_of_the_hook(self):
        """A framework is used as it is if its change fails."""
        code = f"import gpumem.run\ndel gpumem.run.change\n{self.KIND}"
        out, errors = self.python(code)
        self.assertEqual(out, ["type"])
        self.assertRegex(errors[0], "^gpumem run: safetensors is used as it is: AttributeError")

    def test_sources_stay_visible(self):
        out, _ = self.python("import inspect, safetensors, importlib; importlib.reload(safetensors)\n"
                             "print('double' in inspect.getsource(safetensors), type(safetensors.safe_open).__name__)")
        self.assertEqual(out, ["True _Meta"])


class Elsewhere(RunCase):
    def test_other_files_are_safetensors_own(self):
        code = ("import safetensors, sys\nfrom safetensors import safe_open\n"
                "with safe_open(sys.argv[1], framework='pt') as f: print(f.keys(), type(f).__module__)\n"
                "print(isinstance(f, safe_open), safe_open.__name__, safe_open.get_slice.__name__)\n"
                "print('torch' in sys.modules, safetensors.opened == [sys.argv[1]])")
        path = self.model("disk")
        self.assertEqual(self.python(code, path),
                         (["['a', 'b'] safetensors", "True safe_open get_slice", "False True"], []))

    def test_only_answers_of_a_daemon_count(self):
        """Neither an attribute of the name nor a special file makes a mount."""
        path = self.model("disk")
        try:
            os.setxattr(path, "user.gpumem.device", b"GPU-1")
        except OSError:
            pass
        code = ("import sys; from gpumem.run import _mounts\n"
                "print([_mounts.device_at(p) for p in (*sys.argv[1:], None)])")
        self.assertEqual(self.python(code, path, "/dev/zero", "/proc/self/mem", self.folder, "none", "/dev/tty")[0],
                         [str([None] * 7)])

    def test_arguments_that_safetensors_refuses(self):
        path = self.model()
        code = MOUNTS + ("import safetensors, sys\n"
                         "path = sys.argv[1]\n"
                         "for a, o in (((), {}), ((3, 'pt'), {}), ((path,), {}), ((path, 'pt'), {'x': 1})):\n"
                         "    try: print(safetensors.safe_open(*a, **o))\n"
                         "    except (TypeError, OSError) as error: print(type(error).__name__, error)\n"
                         "print(type(safetensors.safe_open(sys.argv[1], 'np')).__module__)")
        out, _ = self.python(code, path)
        self.assertEqual(out[-1], "safetensors")
        self.assertEqual([line.split()[0] for line in out[:-1]], ["TypeError", "OSError", "TypeError", "TypeError"])

    def test_an_unknown_safetensors(self):
        folder = self.folder / "new" / "safetensors"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("__version__ = '2.0'\nclass safe_open: pass\n")
        out, errors = self.python(Start.KIND, path=[folder.parent])
        self.assertEqual((out, len(errors)), (["type"], 1))
        self.assertIn("gpumem run: safetensors 2.0 is not known", errors[0])

    def test_a_library_that_is_missing(self):
        code = MOUNTS + ("import safetensors, sys\n"
                         "for _ in 1, 2: print(type(safetensors.safe_open(sys.argv[1], 'pt')).__module__)")
        out, errors = self.python(code, self.model(), GPUMEM_LIBRARY="/none.so")
        self.assertEqual((out, len(errors)), (["safetensors"] * 2, 1))
        self.assertIn("gpumem run: files on a mount are read by safetensors: ", errors[0])


@unittest.skipUnless(HAS_TORCH, "no torch in this Python")
class Served(RunCase):
    LOAD = MOUNTS + ("import safetensors.torch, sys\n"
                     "for path in sys.argv[1:]:\n"
                     "    print({n: t.tolist() for n, t in sorted(safetensors.torch.load_file(path).items())})\n"
                     "print(safetensors.opened)")
    TENSORS = "{'a': [[0.0, 1.0], [2.0, 3.0]], 'b': [4.0]}"

    def test_load_file(self):
        path, host, disk = self.model(), self.model("host"), self.model("disk")
        end = r" \(python[0-9.]*, pid \d+\)$"
        for run, words in (("view", "40 bytes as views, 0 copied"), ("copy", "0 as views, 0 copied, 40 bytes read"),
                           ("auto", "0 as views, 0 copied, 40 bytes read")):
            out, errors = self.python(self.LOAD, path, host, disk, run=run)
            self.assertEqual(out, [self.TENSORS] * 3 + [str([str(disk)])])
            self.assertRegex("\n".join(errors), "^gpumem run: 2 files, " + words + end)
        _, errors = self.python(self.LOAD, path, run="view,stats")
        self.assertEqual(errors[0], f"gpumem run: {path}: view, 2 tensors, 20 bytes")
        self.assertRegex("\n".join(errors[1:]), "^gpumem run: 1 file, 20 bytes as views, 0 copied" + end)

    def test_a_file_name_with_control_characters(self):
        path = self.model(name="m\x1b[2J.safetensors")
        _, errors = self.python(self.LOAD, path, run="view,stats")
        self.assertNotIn("\x1b", "".join(errors))

    def test_an_open_file(self):
        code = MOUNTS + ("import sys\nfrom safetensors import safe_open\nimport gpumem.torch\n"
                         "with safe_open(sys.argv[1], framework='pt', device='cpu') as f:\n"
                         "    print(isinstance(f, safe_open), isinstance(f, gpumem.torch.safe_open), f.metadata())\n"
                         "    print(f.get_slice('a')[1:].tolist(), f.get_slice('a').get_dtype())")
        out, _ = self.python(code, self.model())
        self.assertEqual(out, ["True True {'format': 'pt'}", "[[2.0, 3.0]] F32"])

    def test_wrong_files(self):
        """Exceptions name the file and the tensor, and programs catch them as those of safetensors."""
        code = MOUNTS + ("import safetensors.torch, sys\n"
                         "try: safetensors.torch.load_file(sys.argv[1])\n"
                         "except safetensors.SafetensorError as error: print('error', error)\n"
                         "except FileNotFoundError as error: print('none', error)")
        bad = self.file("simulated", b"\xff" * 30, "bad")
        six = self.file("simulated", pack({"six": entry("F6_E2M3", [8], 0, 6)}, bytes(6)), "six")
        for path, words in ((bad, ["error", bad]), (six, ["error", six, "'six'"]), (bad.with_name("none"), ["none"])):
            out, _ = self.python(code, path)
            for word in words:
                self.assertIn(str(word), out[0])

    def test_children(self):
        """Each process reports its own files; a forked child does not repeat those of its parent."""
        script = self.folder / "script.py"
        script.write_text(MOUNTS + (
            "import multiprocessing, os, safetensors.torch, subprocess, sys\n"
            "def load(path): return safetensors.torch.load_file(path)['b'].item()\n"
            "if __name__ == '__main__':\n"
            "    load(sys.argv[1])\n"
            "    child = os.fork()\n"
            "    if not child: sys.exit()\n"
            "    os.waitpid(child, 0)\n"
            "    spawned = multiprocessing.get_context('spawn').Process(target=load, args=(sys.argv[1],))\n"
            "    spawned.start(); spawned.join()\n"
            "    print(spawned.exitcode)\n"))
        path = self.model()
        out, errors = self.python("import subprocess, sys; sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))",
                                  script, path, run="view")
        self.assertEqual(out, ["0"])
        self.assertEqual(len(errors), 2, errors)
        self.assertEqual(len({line.rpartition("pid ")[2] for line in errors}), 2)

    def test_threads(self):
        code = MOUNTS + ("import concurrent.futures, sys\n"
                         "import safetensors.torch\n"
                         "with concurrent.futures.ThreadPoolExecutor(8) as pool:\n"
                         "    list(pool.map(safetensors.torch.load_file, [sys.argv[1]] * 64))")
        _, errors = self.python(code, self.model(), run="view,stats")
        self.assertIn("128 tensors", errors[0])


@unittest.skipUnless(HAS_TORCH, "no torch in this Python")
class Transformers(RunCase):
    LOAD = MOUNTS + ("import sys\nimport gpumem.torch, torch\n"
                     "from transformers import core_model_loading, modeling_utils\n"
                     "def to_device(self, device=None, dtype=None, index=...): return self[index].to(dtype=dtype)\n"
                     "gpumem.torch.Slice.to_device = to_device\n"
                     "device = sys.argv[1]\n"
                     "got = modeling_utils.PreTrainedModel.from_pretrained(sys.argv[2:], device, torch.float64)\n"
                     "print(got['a'].tolist(), got['a'].dtype, len(core_model_loading.original),"
                     " len(modeling_utils.warmups))")
    A = "[[0.0, 1.0], [2.0, 3.0]] torch.float64"

    def test_a_gpu(self):
        """Tensors go to the GPU by gpumem.torch, and no memory is allocated before."""
        out, errors = self.python(self.LOAD, "cuda:0", self.model(), run="view")
        self.assertEqual((out, len(errors)), ([f"{self.A} 0 0"], 1))

    def test_the_cpu(self):
        out, _ = self.python(self.LOAD, "cpu", self.model("host"))
        self.assertEqual(out, [f"{self.A} 2 1"])

    def test_memory_is_allocated_for_other_loads(self):
        for run, paths in (("copy", [self.model()]), ("auto", [self.model("host")]),
                           ("auto", [self.model(), self.model("disk")])):
            out, _ = self.python(self.LOAD, "cpu", *paths, run=run)
            self.assertEqual(out[0].split()[-1], "1", run)

    def test_a_file_elsewhere(self):
        out, errors = self.python(self.LOAD, "cpu", self.model("disk"))
        self.assertEqual((out, errors), ([f"{self.A} 2 1"], []))

    def test_unknown_versions(self):
        for environment in ({"DOUBLE_TRANSFORMERS": "6.0.1"}, {"DOUBLE_SIGNATURE": "1"}):
            out, errors = self.python("from transformers.core_model_loading import _materialize_copy as copy\n"
                                      "print(copy.__module__)\nprint(hasattr(copy, '__wrapped__'))", **environment)
            self.assertEqual(out, ["transformers.core_model_loading", "False"])
            version = environment.get("DOUBLE_TRANSFORMERS", "5.17.0")
            self.assertEqual(errors, [f"gpumem run: transformers {version} is not known: "
                                      "its tensors are read to the CPU first"])
        _, errors = self.python("from transformers import modeling_utils", DOUBLE_TRANSFORMERS="6.0.1")
        self.assertEqual(len(errors), 2)
        self.assertEqual(self.python("from transformers import modeling_utils")[1], [])


@unittest.skipUnless(HAS_TORCH, "no torch in this Python")
class Engines(RunCase):
    VLLM, SGLANG = "vllm.model_executor.model_loader", "sglang.srt.model_loader"
    LOAD = MOUNTS + ("import importlib, sys\n"
                     "weight_utils = importlib.import_module(sys.argv[1] + '.weight_utils')\n"
                     "options = eval(sys.argv[2])\n"
                     "got = weight_utils.safetensors_weights_iterator(sys.argv[3:], **options)\n"
                     "print({name: tensor.tolist() for name, tensor in got}, len(weight_utils.original))")

    def loaded(self, engine, options, *paths, **more):
        out, errors = self.python(self.LOAD, engine, options, *paths, **more)
        tensors, _, count = out[0].rpartition(" ")
        self.assertEqual(tensors, Served.TENSORS)
        return int(count), errors

    def test_files_of_a_gpu(self):
        for engine, options in ((self.VLLM, {"use_tqdm_on_load": True}), (self.SGLANG, {})):
            count, errors = self.loaded(engine, options, self.model(), run="view")
            self.assertEqual(count, 0, engine)
            self.assertRegex("\n".join(errors), "^gpumem run: 1 file, 20 bytes as views, 0 copied ")

    def test_other_files(self):
        for folders in (("disk",), ("host",), ("simulated", "disk")):
            paths = [self.model(folder) for folder in folders]
            self.assertEqual(self.loaded(self.SGLANG, {}, *paths)[0], 1, folders)

    def test_other_wishes(self):
        """What the engine does with the tensors of a file stays its own."""
        for engine, options in ((self.VLLM, {"use_tqdm_on_load": True, "local_expert_ids": [1]}),
                                (self.VLLM, {"use_tqdm_on_load": True, "safetensors_load_strategy": "torchao"}),
                                (self.SGLANG, {"decryption_key": "key"})):
            self.assertEqual(self.loaded(engine, options, self.model())[0], 1, options)

    def test_a_damaged_file(self):
        bad = self.file("simulated", b"\xff" * 30, "bad")
        code = self.LOAD.replace("print(", "try: print(") + "\nexcept Exception as error: print(repr(error))"
        out, _ = self.python(code, self.SGLANG, {}, bad)
        self.assertTrue(out[0].startswith("SafetensorError") and str(bad) in out[0], out)

    def test_an_unknown_version(self):
        _, errors = self.python(f"import {self.SGLANG}.weight_utils", DOUBLE_SIGNATURE="1")
        self.assertEqual(errors, ["gpumem run: this version of sglang is not known: weights are read to the CPU first"])


if __name__ == "__main__":
    unittest.main()
