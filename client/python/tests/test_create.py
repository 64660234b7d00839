# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Files made by create() and by the modes "w+" and "x+" of open()."""

from __future__ import annotations

import errno
import unittest

from .support import Case, gpumem


class Creating(Case):
    def test_an_array_of_zeros(self):
        path = self.gpu / "array"
        array = gpumem.create(path, (3, 5), "float16")
        self.assertEqual((array.shape, array.dtype, array.nbytes, array.read_only), ((3, 5), "float16", 30, False))
        self.assertEqual(path.read_bytes(), bytes(30))
        array.memory[:2] = b"xy"
        self.assertEqual(path.read_bytes()[:4], b"xy\0\0")

    def test_another_process_opens_it(self):
        gpumem.create(self.host / "array", 4, "int32").memory[:4] = (7).to_bytes(4, "little")
        with gpumem.open(self.host / "array") as buffer:
            self.assertEqual(bytes(buffer.memory[:4]), b"\7\0\0\0")

    def test_exclusive(self):
        path = self.file(content=b"old")
        with self.assertRaises(FileExistsError) as raised:
            gpumem.create(path, 4, exclusive=True)
        self.assertEqual((raised.exception.filename, path.read_bytes()), (str(path), b"old"))
        gpumem.create(path, 4)
        self.assertEqual(path.read_bytes(), bytes(4))

    def test_no_room(self):
        with self.assertRaises(OSError) as raised:
            gpumem.create(self.gpu / "array", (1 << 50,), "float64")
        self.assertEqual(raised.exception.errno, errno.ENOSPC)

    def test_bad_arguments(self):
        for arguments in ((-1,), ("x",), ((2, -3),), (3, "float4_e2m1fn"), (1, "nothing"), (1 << 62, "float64")):
            with self.assertRaises(ValueError, msg=str(arguments)):
                gpumem.create(self.gpu / "array", *arguments)
        self.assertEqual(list(self.gpu.iterdir()), [])

    def test_not_on_a_mount(self):
        with self.assertRaises(OSError) as raised:
            gpumem.create(self.folder / "disk" / "array", 4)
        self.assertEqual(raised.exception.errno, errno.ENOTSUP)


class Modes(Case):
    def test_w_plus_replaces(self):
        path = self.file(content=b"old")
        with gpumem.open(path, "w+", size=1000) as buffer:
            self.assertEqual((buffer.size, buffer.read_only, buffer.private), (1000, False, False))
        self.assertEqual(path.read_bytes(), bytes(1000))

    def test_x_plus_does_not(self):
        path = self.file(content=b"old")
        with self.assertRaises(FileExistsError):
            gpumem.open(path, "x+", size=1000)
        with gpumem.open(self.gpu / "new", "x+", size=1000) as buffer:
            self.assertEqual(buffer.size, 1000)
        self.assertEqual(path.read_bytes(), b"old")

    def test_a_size_for_new_files_only(self):
        path = self.file()
        for mode, size in (("w+", None), ("x+", None), ("r", 5), ("r+", 5), ("copy", 5), ("w+", -1), ("w+", 1 << 64)):
            with self.assertRaises(ValueError, msg=f"{mode} {size}"):
                gpumem.open(path, mode, size=size)


if __name__ == "__main__":
    unittest.main()
