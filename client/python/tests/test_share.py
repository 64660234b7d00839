# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""share(), with arrays of the CPU's memory that say they are on a GPU."""

from __future__ import annotations

import ctypes
import errno
import gc
import types
import unittest
import weakref

from .support import Case, gpumem


class Array:
    """An array of bytes with the interface of arrays on a GPU."""

    def __init__(self, content, shift=0, **interface):
        self.bytes = ctypes.create_string_buffer(content, len(content))
        self.__cuda_array_interface__ = {
            "data": (ctypes.addressof(self.bytes) + shift, False), "shape": (len(content) // 2,), "typestr": "<i2",
            "version": 3} | interface


def tensor(array, contiguous=True, on_gpu=True):
    return types.SimpleNamespace(
        data_ptr=lambda: array.__cuda_array_interface__["data"][0], numel=lambda: len(array.bytes) // 2,
        element_size=lambda: 2, is_cuda=on_gpu, is_contiguous=lambda: contiguous, device="cpu")


class Sharing(Case):
    def test_the_bytes_are_the_arrays(self):
        array = Array(b"some bytes")
        buffer = gpumem.share(self.gpu / "shared", array)
        self.assertEqual((self.gpu / "shared").read_bytes(), b"some bytes")
        self.assertEqual(buffer.nbytes, 10)
        torch_like = gpumem.share(self.gpu / "tensor", tensor(Array(b"of a tensor!")))
        self.assertEqual((self.gpu / "tensor").read_bytes(), b"of a tensor!")
        del torch_like

    def test_the_array_lives_as_long_as_the_buffer(self):
        array = Array(b"some bytes")
        reference = weakref.ref(array)
        buffer = gpumem.share(self.gpu / "shared", array)
        del array
        gc.collect()
        self.assertIsNotNone(reference())
        buffer.close()
        del buffer
        gc.collect()
        self.assertIsNone(reference())

    def test_the_end_of_the_process(self):
        gpumem.share(self.gpu / "shared", Array(b"some bytes"))
        buffer = gpumem.open(self.gpu / "shared")
        calls = []
        buffer.on_end(lambda: calls.append(buffer))
        self.assertEqual(calls, [buffer])
        buffer.on_end(None)
        self.assertEqual(calls, [buffer])
        self.assertGreaterEqual(buffer.end_fd(), 0)
        reference = weakref.ref(buffer)
        del buffer
        calls.clear()
        gc.collect()
        self.assertIsNone(reference())

    def test_exclusive(self):
        path = self.file(content=b"old")
        with self.assertRaises(FileExistsError):
            gpumem.share(path, Array(b"new!"), exclusive=True)
        self.assertEqual(path.read_bytes(), b"old")
        gpumem.share(path, Array(b"new!"))
        self.assertEqual(path.read_bytes(), b"new!")

    def test_memory_that_is_not_exported(self):
        with self.assertRaises(OSError) as raised:
            gpumem.share(self.gpu / "shared", Array(b"some bytes", shift=1))
        self.assertEqual(raised.exception.errno, errno.ENOTSUP)
        self.assertIn("cuMemCreate", str(raised.exception))

    def test_in_c_order(self):
        array = Array(bytes(range(12)), shape=(2, 3), strides=(6, 2))
        gpumem.share(self.gpu / "shared", array)
        self.assertEqual((self.gpu / "shared").read_bytes(), bytes(range(12)))
        for wrong in (Array(bytes(12), shape=(2, 3), strides=(2, 4)), tensor(Array(b"ab"), contiguous=False)):
            with self.assertRaisesRegex(ValueError, "contiguous"):
                gpumem.share(self.gpu / "wrong", wrong)
        self.assertFalse((self.gpu / "wrong").exists())

    def test_not_an_array_of_a_gpu(self):
        for wrong in (b"bytes", [1, 2], tensor(Array(b"ab"), on_gpu=False)):
            with self.assertRaises(TypeError):
                gpumem.share(self.gpu / "wrong", wrong)
        with self.assertRaisesRegex(ValueError, "empty"):
            gpumem.share(self.gpu / "wrong", Array(b"", shape=(0,)))


if __name__ == "__main__":
    unittest.main()
