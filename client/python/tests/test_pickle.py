# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Objects that are pickled, copied, and given to other processes: files are opened again, all else is refused."""

import copy
import errno
import os
import pickle
import subprocess
import sys
import unittest
import unittest.mock

from .support import PACKAGE, Case, Current, entry, fake, gpumem, pack

# A process that gets an object by a pipe, as multiprocessing's "spawn" gives arguments. The array interface and the
# bytes show that the memory is mapped there.
CHILD = """
import pickle, sys
made = pickle.load(sys.stdin.buffer)
if isinstance(made, gpumem.SafeTensors):
    made = made["w"]
made.memory[0] = 77
print(made.read_only, made.nbytes, bytes(made.memory[:3]), type(made).__name__)
"""


def in_child(pickled):
    script = f"import gpumem\n{CHILD}"
    return subprocess.run([sys.executable, "-c", script], cwd=PACKAGE, input=pickled, capture_output=True, check=False)


class Pickled(Case):
    def copies(self, made):
        """The object again, in each way."""
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            yield pickle.loads(pickle.dumps(made, protocol))
        yield copy.copy(made)
        yield copy.deepcopy(made)

    def test_buffers(self):
        for folder in ("gpu0", "host"):
            path = self.file(folder)
            with gpumem.open(path, "r+") as buffer:
                for again in self.copies(buffer):
                    self.assertEqual((again.path, again.size, again.read_only), (str(path), 4096, False))
                    buffer.memory[5] ^= 0xff
                    self.assertEqual(again.memory[:9], buffer.memory[:9])
                    self.assertIsNot(again, buffer)
                    again.close()
                    self.assertEqual(buffer.size, 4096)

    def test_the_mode(self):
        trusted = self.file(name="trusted")
        for path, mode, read_only, private in ((trusted, "r", True, False), (self.file(), "r", False, True),
                                               (self.file(), "copy", False, True), (self.file("host"), "r", True, False)):
            with gpumem.open(path, mode) as buffer:
                for again in self.copies(buffer):
                    self.assertEqual((again.read_only, again.private), (read_only, private))
        with gpumem.open(self.gpu / "new", "x+", 64) as buffer:
            for again in self.copies(buffer):
                self.assertEqual((again.read_only, again.size), (False, 64))

    def test_views(self):
        view = gpumem.open(self.file("host"), "r+").view("float16", (2, 5), 64)
        for again in self.copies(view):
            self.assertEqual((again.dtype, again.shape, again.offset), ("float16", (2, 5), 64))
            self.assertEqual(bytes(again.memory), bytes(range(64, 84)))

    def test_one_lease_for_all_views_of_a_pickle(self):
        with gpumem.open(self.file("host"), "r+") as buffer:
            pickled = pickle.dumps({"buffer": buffer, **{number: buffer.view("uint8", 1, number) for number in range(100)}})
        del buffer
        made = pickle.loads(pickled)
        self.assertEqual(fake("fake_leases"), 1)
        self.assertEqual([made[number].memory[0] for number in range(100)], list(range(100)))

    def test_safetensors(self):
        path = self.file(content=pack({"w": entry("F32", [2], 0, 8), "x": entry("I8", [1], 8, 9)}, b"abcdefghi", pad=1))
        with gpumem.safetensors(path, "r+", on_misaligned="copy") as tensors:
            for again in self.copies(tensors):
                self.assertEqual((list(again), again["x"].shape, again.misaligned), (["w", "x"], (1,), tensors.misaligned))
                self.assertEqual(bytes(again["x"].memory), b"i")

    def test_another_process(self):
        for folder in ("gpu0", "host"):
            path = self.file(folder, pack({"w": entry("U8", [9], 0, 9)}, b"abcdefghi"))
            with gpumem.open(path, "r+") as buffer, gpumem.safetensors(path, "r+") as tensors:
                for made, kind, size in ((buffer, b"Buffer", os.path.getsize(path)), (buffer.view("int16", 3), b"View", 6),
                                         (tensors, b"View", 9)):
                    child = in_child(pickle.dumps(made))
                    self.assertEqual((child.returncode, child.stderr), (0, b""))
                    self.assertIn(b"False %d b'M" % size, child.stdout)
                    self.assertIn(kind, child.stdout)
                self.assertEqual((buffer.memory[0], bytes(tensors["w"].memory[:3])), (77, b"Mbc"))

    def test_another_directory(self):
        self.file("host")
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            pickled = pickle.dumps(gpumem.open("./host/file", "r+"))
        finally:
            os.chdir(here)
        self.assertEqual(pickle.loads(pickled).memory[3], 3)


class Refused(Case):
    def refused(self, made, text):
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            with self.assertRaises(TypeError) as raised:
                way(made)
            self.assertRegex(str(raised.exception), text)

    def test_closed(self):
        buffer, path = gpumem.open(self.file("host")), self.file(content=pack({}, b""))
        tensors = gpumem.safetensors(path)
        buffer.close()
        tensors.close()
        self.refused(buffer, "closed")
        self.refused(tensors, "closed")

    def test_copies(self):
        with gpumem.open(self.file("host"), "r+") as buffer:
            view = buffer.view("uint8", 8).copy()
        with self.assertRaisesRegex(TypeError, "memory of this process alone"):
            pickle.dumps(view)
        with Current(0), gpumem.open(self.file(), "r+") as buffer:
            view = buffer.view("uint8", 8).copy()
        with self.assertRaisesRegex(TypeError, "memory of this process alone"):
            copy.deepcopy(view)
        self.assertEqual(copy.copy(view).nbytes, 8)  # one memory with two references

    def test_descriptors(self):
        with gpumem.open(self.file(), "r+") as buffer:
            for piece in buffer.export():
                self.refused(piece, "descriptor")
                piece.close()

    def test_files_without_their_name(self):
        path = self.file("host")
        with gpumem.open(path, "r+") as buffer:
            path.unlink()
            with self.assertRaisesRegex(TypeError, "No such file"):
                pickle.dumps(buffer)
            self.file("host")
            with self.assertRaisesRegex(TypeError, "another file"):
                copy.deepcopy(buffer.view("uint8"))


class Changed(Case):
    """What became of the file between pickle and the other end."""

    def setUp(self):
        super().setUp()
        self.path = self.file("host")
        with gpumem.open(self.path, "r+") as buffer:
            self.view, self.buffer = pickle.dumps(buffer.view("uint8", 4000)), pickle.dumps(buffer)

    def test_removed(self):
        self.path.unlink()
        with self.assertRaises(FileNotFoundError):
            pickle.loads(self.view)

    def test_replaced(self):
        new = self.file("host", name="new")
        new.rename(self.path)
        with self.assertRaises(OSError) as raised:
            pickle.loads(self.buffer)
        self.assertEqual((raised.exception.errno, raised.exception.filename), (errno.ESTALE, str(self.path)))

    def test_another_machine(self):
        from gpumem import _identity
        with unittest.mock.patch.object(_identity, "machine", lambda: "another"), self.assertRaises(OSError) as raised:
            pickle.loads(self.buffer)
        self.assertEqual(raised.exception.errno, errno.ESTALE)

    def test_shorter(self):
        os.truncate(self.path, 3000)
        self.assertEqual(pickle.loads(self.buffer).size, 3000)
        with self.assertRaisesRegex(ValueError, "too short"):
            pickle.loads(self.view)

    def test_safetensors_of_another_size(self):
        path = self.file(content=pack({"w": entry("F32", [2], 0, 8)}, b"abcdefgh"))
        pickled = pickle.dumps(gpumem.safetensors(path, "r+"))
        os.truncate(path, os.path.getsize(path) - 1)
        with self.assertRaisesRegex(ValueError, "changed its size"):
            pickle.loads(pickled)

    def test_shared_otherwise(self):
        with gpumem.open(self.file()) as buffer:
            again, (name, flags, identity, private) = buffer._memory.__reduce__()
        self.assertTrue(private)
        with self.assertRaisesRegex(ValueError, "user.gpumem.share has changed"):
            again(name, flags, identity, False)


if __name__ == "__main__":
    unittest.main()
