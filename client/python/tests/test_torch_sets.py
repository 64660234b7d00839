# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""share() and attach() of sets of tensors, with a real torch on memory of the CPU: the fake library shares a copy."""

import errno
import json
import os
import unittest
import unittest.mock

from .support import Case, gpumem

try:
    import torch
    import gpumem.torch as gt
    from gpumem.torch import _sets

    class OnGpu(torch.Tensor):
        is_cuda = True
except ImportError:
    torch = None


def on_gpu(tensor):
    return tensor.as_subclass(OnGpu)


@unittest.skipIf(torch is None, "no torch in this Python")
class Sets(Case):
    def setUp(self):
        super().setUp()
        # A segment of the allocator, which has everything but `elsewhere`.
        self.segment = torch.arange(4096, dtype=torch.int64)
        self.elsewhere = torch.arange(10.0)
        begin = self.segment.data_ptr()
        for name, value in (("memory_snapshot", lambda: [{"address": begin, "total_size": 8 * 4096}]),
                            ("synchronize", lambda device: None)):
            patch = unittest.mock.patch.object(torch.cuda, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def some(self):
        segment = self.segment
        return {name: on_gpu(tensor) for name, tensor in {
            "first": segment[64:128], "matrix": segment[256:512].view(16, 16), "transposed": segment[512:768].view(16, 16).t(),
            "halves": segment[768:1024].view(torch.bfloat16).view(4, 256), "tied": segment[256:512].view(16, 16),
            "empty": segment[:0].view(0, 4), "scalar": segment[1500], "elsewhere": self.elsewhere,
            "overlapping": self.elsewhere[5:]}.items()}

    def write(self, change):
        path = self.folder / "simulated" / "tensors.json"
        index = json.loads(path.read_text())
        change(index)
        path.write_text(json.dumps(index))

    def shared(self):
        return gt.share(self.folder / "simulated", self.some())

    def attached(self):
        return gt.attach(self.folder / "simulated")

    def test_tensors_come_back(self):
        with self.shared() as shared:
            self.assertEqual(len(shared.files), 2)
            found = self.attached()
            self.assertEqual(len(found.buffers), 2)
            for name, tensor in self.some().items():
                self.assertEqual(found[name].dtype, tensor.dtype)
                self.assertEqual(found[name].stride(), tensor.stride())
                self.assertTrue(torch.equal(found[name], tensor.as_subclass(torch.Tensor)), name)
            found["matrix"][3, 5] = -1
            self.assertEqual(found["tied"][3, 5], -1)
            again = self.attached()
            self.assertEqual(again["tied"][3, 5], -1)

    def test_a_module(self):
        module = torch.nn.Linear(3, 2)
        module.weight = torch.nn.Parameter(self.segment[:12].view(torch.float32)[:6].view(2, 3), requires_grad=False)
        state = {name: on_gpu(tensor) for name, tensor in module.state_dict().items()}
        with unittest.mock.patch.object(module, "state_dict", lambda: state), \
                gt.share(self.folder / "simulated", module):
            self.assertTrue(torch.equal(self.attached()["weight"], module.weight))

    def test_a_later_set_replaces_an_earlier_one(self):
        first = self.shared()
        second = gt.share(self.folder / "simulated", {"only": on_gpu(self.segment[:8])})
        self.assertEqual(list(self.attached()), ["only"])
        first.close()
        self.assertEqual(list(self.attached()), ["only"])
        second.close()
        with self.assertRaises(FileNotFoundError):
            self.attached()

    def test_an_ended_process(self):
        with self.shared() as shared:
            for path in shared.files:
                self.folder.joinpath(path).unlink()
            with self.assertRaises(OSError) as caught:
                self.attached()
            self.assertEqual(caught.exception.errno, errno.ESTALE)

    def test_another_file_of_the_name(self):
        with self.shared():
            self.write(lambda index: index["files"][0].update(inode=1))
            with self.assertRaises(OSError) as caught:
                self.attached()
            self.assertEqual(caught.exception.errno, errno.ESTALE)

    def test_a_link_is_not_followed(self):
        with self.shared() as shared:
            path = self.folder / shared.files[0]
            path.rename(self.folder / "elsewhere")
            path.symlink_to(self.folder / "elsewhere")
            with self.assertRaises(OSError) as caught:
                self.attached()
            self.assertEqual(caught.exception.errno, errno.ELOOP)
            path.unlink()

    def test_tensors_at_odd_bytes(self):
        raw = self.segment.view(torch.uint8)
        with gt.share(self.folder / "simulated", {"bytes": on_gpu(raw[514:600]), "words": on_gpu(self.segment[80:90])}):
            found = self.attached()
            self.assertTrue(torch.equal(found["bytes"], raw[514:600]))
            self.assertTrue(torch.equal(found["words"], self.segment[80:90]))

    def test_views_of_other_values(self):
        numbers = on_gpu(torch.tensor([1 + 2j]))
        with self.assertRaisesRegex(ValueError, "resolve_conj"):
            gt.share(self.folder / "simulated", {"t": numbers.conj()})

    def test_a_fifo_is_no_index(self):
        os.mkfifo(self.folder / "simulated" / "tensors.json")
        with self.assertRaisesRegex(ValueError, "no regular file"):
            self.attached()

    def test_the_end_is_told_once(self):
        calls = []
        with self.shared():
            self.attached().on_end(lambda: calls.append(1))
        self.assertEqual(calls, [1])

    def test_a_failure_leaves_nothing(self):
        before = sorted((self.folder / "simulated").iterdir())
        with unittest.mock.patch.object(_sets, "_index_write", side_effect=OSError(errno.ENOSPC, "full")), \
                self.assertRaises(OSError):
            self.shared()
        self.assertEqual(sorted((self.folder / "simulated").iterdir()), before)

    def test_what_cannot_be_shared(self):
        for tensor, reason in ((torch.zeros(3), "not on a GPU"), (on_gpu(torch.zeros(3, dtype=torch.complex128)), "index"),
                               (torch.eye(3).to_sparse(), "index")):
            with self.assertRaisesRegex(ValueError, f"'t'.*{reason}"):
                gt.share(self.folder / "simulated", {"t": tensor})

    def test_indexes_that_lie(self):
        def entry(name, **values):
            return lambda index: index["tensors"][name].update(values)

        lies = [
            lambda index: index.update(gpumem_tensors=2), lambda index: index.update(files={}),
            lambda index: index.update(tensors=[]), lambda index: index["files"][0].update(name="../x"),
            lambda index: index["files"][0].update(name=""), lambda index: index["files"][0].update(name="a\0b"),
            lambda index: index["files"][0].update(inode="1"), lambda index: index["files"].__setitem__(0, "x"),
            lambda index: index["tensors"].update(first=7), lambda index: index["tensors"]["first"].pop("shape"),
            entry("first", file=2), entry("first", file=-1), entry("first", file=True), entry("first", file="0"),
            entry("first", offset=-8), entry("first", offset=4), entry("first", offset=1 << 62),
            entry("first", offset=1 << 70), entry("first", offset=None), entry("first", dtype="X"), entry("first", dtype=[]),
            entry("first", shape=[1 << 40]), entry("first", shape=[1 << 62, 1 << 62]), entry("first", shape=[-1]), entry("first", shape=[1] * 65),
            entry("first", shape=[64.0]), entry("first", shape=64), entry("transposed", strides=[1]),
            entry("transposed", strides=[-1, 16]), entry("transposed", strides=[1 << 50, 1]),
            entry("transposed", strides=[1, 1 << 62]), entry("transposed", strides="ab"),
        ]
        with self.shared():
            path = self.folder / "simulated" / "tensors.json"
            good = path.read_bytes()
            for number, lie in enumerate(lies):
                path.write_bytes(good)
                self.write(lie)
                with self.subTest(number), self.assertRaisesRegex(ValueError, "not an index of tensors"):
                    self.attached()
            for text in (b"", b"[]", b"{", b"\xff", b"[" * 100_000):
                path.write_bytes(text)
                with self.subTest(text[:10]), self.assertRaisesRegex(ValueError, "not an index of tensors"):
                    self.attached()
            path.write_bytes(good)
            gpumem.open(self.attached().buffers[0].path).close()
