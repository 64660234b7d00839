# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""gpumem_align of libgpumem against gpumem.align: the same files are refused, and of the others the
same bytes and verdicts come out."""

import ctypes
import json
import os
import random
import unittest
from pathlib import Path

from .support import ROOT, Case, entry, gpumem, pack
from .test_safetensors import BAD, DATA, SEED, three

LIBRARY = Path(os.environ.get("BUILD") or ROOT / "build") / "libgpumem.so.0"
SIZES = {"U8": 1, "BOOL": 1, "BF16": 2, "F32": 4, "F64": 8}


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("offset", ctypes.c_uint64),
                ("size", ctypes.c_uint64), ("unit", ctypes.c_uint32), ("place", ctypes.c_uint32)]


class Result(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_size_t), ("data_start", ctypes.c_uint64), ("aligned", ctypes.c_uint64),
                ("viewable", ctypes.c_uint64), ("misaligned", ctypes.c_uint64)]


EACH = ctypes.CFUNCTYPE(None, ctypes.POINTER(Tensor), ctypes.c_void_p)


@unittest.skipUnless(LIBRARY.exists(), f"{LIBRARY} is not built")
class InC(Case):
    @classmethod
    def setUpClass(cls):
        cls.library = ctypes.CDLL(str(LIBRARY), use_errno=True)
        cls.library.gpumem_align.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, EACH,
                                             ctypes.c_void_p, ctypes.POINTER(Result)]
        cls.library.gpumem_error.restype = ctypes.c_char_p

    def align(self, source, target, alignment):
        """What gpumem.align would return, or the errno and text of a failure."""
        lists, result = ([], [], []), Result(ctypes.sizeof(Result))

        @EACH
        def each(tensor, _):
            lists[tensor.contents.place - 1].append(tensor.contents.name.decode())
        if self.library.gpumem_align(os.fsencode(source), os.fsencode(target), alignment, each, None, ctypes.byref(result)):
            return ctypes.get_errno(), self.library.gpumem_error().decode()
        self.assertEqual([result.aligned, result.viewable, result.misaligned], [len(names) for names in lists])
        return (result.data_start, *lists)

    def compare(self, content, alignment=256):
        """True: both took it."""
        source = self.file("disk", content)
        ours, theirs = self.gpu / "in_c", self.gpu / "in_python"
        for path in (ours, theirs):
            path.unlink(missing_ok=True)
        got = self.align(source, ours, alignment)
        try:
            wanted = gpumem.align(source, theirs, alignment)
        except ValueError as error:
            self.assertEqual(len(got), 2, f"C took what is refused here ({error}): {content!r}")
            self.assertEqual(got[0], 22)
            self.assertIn(str(source) if alignment == 256 else f"alignment {alignment}", got[1])
            self.assertEqual(list(self.gpu.iterdir()), [])
            return False
        self.assertEqual(got, tuple(wanted), f"GPUMEM_SEED={SEED}: {content!r}, {alignment}")
        self.assertEqual(ours.read_bytes(), theirs.read_bytes())
        self.assertEqual(sorted(self.gpu.iterdir()), [ours, theirs])
        return True

    def test_what_is_refused(self):
        for number, (content, _) in enumerate(BAD):
            with self.subTest(number=number, content=content[:100]):
                self.assertFalse(self.compare(content))

    def test_three(self):
        for alignment in (1, 2, 8, 64, 256, 4096, 1 << 20):
            for pad in (0, 1, 3, 1000):
                self.assertTrue(self.compare(three(pad), alignment))
        for alignment in (0, 3, 1 << 21):
            self.assertFalse(self.compare(three(), alignment))

    def test_odd_but_good(self):
        """What the format allows and few write."""
        tensor = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]%s}'
        for text in ('{}', '{}  \n\t ', '{"__metadata__":{}}', '{"__metadata__":{"a":"\\u0000\\ud83d\\ude00"}}',
                     '{"t":%s}' % (tensor % ',"more":[null,{"x":[true]},"y",-5]'), '{"":%s}' % (tensor % ""),
                     '{ "\u00e9\\n\\ud83d\\ude00" : %s }' % (tensor % ""), '{"t\\/":%s}' % (tensor % ""),
                     '{"t":{"dtype":"U8","shape":[],"data_offsets":[-0,1]}}',
                     '{"t":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}',
                     '{"t":{"dtype":"F64","shape":[9223372036854775807,0],"data_offsets":[1,1]},"u":%s}' % (tensor % "")):
            with self.subTest(text=text):
                self.assertTrue(self.compare(pack(text, b"" if '"dtype"' not in text else b"x", 3)))
        for text in ('{"t":%s}' % (tensor % ',"more":[1.5]'), '{"t":%s}' % (tensor % ',"more":{"a":1,"a":1}'),
                     '{"__metadata__":null}', '{"__metadata__":{"a":null}}', "{}\x00", "{}{}", '{"t":null}'):
            with self.subTest(text=text):
                self.assertFalse(self.compare(pack(text, b"x" if '"dtype"' in text else b"")))

    def test_random_files(self):
        rng = random.Random(SEED)
        for _ in range(300):
            header, at = {}, 0
            for number in range(rng.randint(0, 9)):
                code = rng.choice(list(SIZES))
                size = rng.randint(0, 3) * SIZES[code]
                header[f"t{number}"] = entry(code, [size // SIZES[code]], at, at + size)
                at += size
            header = dict(rng.sample(list(header.items()), len(header)))
            alignment = rng.choice((1, 4, 16, 32, 256))
            self.assertTrue(self.compare(pack(json.dumps(header), DATA[:at], rng.randint(0, 40)), alignment))

    def test_random_changes(self):
        rng, taken = random.Random(SEED), 0
        start = three()
        snippets = [b"9", b"-", b"[", b"]", b"{", b"}", b'"', b",", b":", b"0", b"1e9", b"null", b"true",
                    b"\xff", b"18446744073709551616", b"F32", b"__metadata__", b"data_offsets", b" ", b"\\", b"\n"]
        for _ in range(3000):
            text = bytearray(start[8:-500])
            for _ in range(rng.randint(1, 3)):
                at, length = rng.randrange(len(text) + 1), rng.choice((0, 0, 1, 1, 2, 8, 60))
                text[at:at + length] = rng.choice(snippets) if rng.random() < 0.7 else rng.randbytes(rng.randint(0, 3))
            taken += self.compare(pack(bytes(text), DATA))
        self.assertGreater(taken, 0)


if __name__ == "__main__":
    unittest.main()
