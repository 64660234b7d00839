# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Safetensors files: as dicts of views, rewritten by align(), and as hostile input."""

import ctypes
import errno
import json
import os
import random
import re
import resource
import signal
import unittest
import unittest.mock

from .support import Case, Consumer, entry, fake, gpumem, pack
from gpumem import _header, _safetensors
from gpumem._dtypes import SAFETENSORS

DATA = bytes(range(250)) * 2
SEED = int(os.environ.get("GPUMEM_SEED") or 20261120)


def three(pad=0):
    """Three tensors of 500 bytes; the data begins at a multiple of 8 + pad."""
    header = {
        "__metadata__": {"format": "pt"},
        "a": entry("F32", [2, 3], 0, 24),
        "b.weight": entry("BF16", [5, 7, 2], 24, 164),
        "c": entry("U8", [336], 164, 500),
    }
    text = json.dumps(header).encode()
    return pack(text, DATA, -len(text) % 8 + pad)


class Reading(Case):
    def test_views(self):
        path = self.file(content=three())
        start = len(three()) - 500
        with gpumem.safetensors(path, "r+") as tensors:
            self.assertEqual((list(tensors), len(tensors), tensors.metadata), (["a", "b.weight", "c"], 3, {"format": "pt"}))
            self.assertEqual((tensors.misaligned, "a" in tensors, "z" in tensors), ([], True, False))
            view = tensors["b.weight"]
            self.assertEqual((view.dtype, view.shape, view.offset), ("bfloat16", (5, 7, 2), start + 24))
            self.assertEqual({name: bytes(view.memory) for name, view in tensors.items()},
                             {"a": DATA[:24], "b.weight": DATA[24:164], "c": DATA[164:]})
            with self.assertRaises(KeyError):
                tensors["z"]
        with self.assertRaises(ValueError):
            tensors["a"]
        taken = Consumer(view.__dlpack__())
        del view, tensors
        ctypes.memset(taken.tensor.data, 0xee, 2)
        taken.drop()
        self.assertEqual(path.read_bytes()[start + 24:start + 27], b"\xee\xee" + DATA[26:27])

    def test_the_empty_and_the_smallest(self):
        for header, data, names in (({}, b"", []), ({"__metadata__": {}}, b"", []),
                                    ({"e": entry("F64", [0, 4], 0, 0)}, b"", ["e"]),
                                    ({"s": entry("F64", [], 0, 8)}, DATA[:8], ["s"])):
            tensors = gpumem.safetensors(self.file(content=pack(header, data, 100)))
            self.assertEqual([name for name in tensors if tensors[name].nbytes == len(data)], names)

    def test_every_dtype(self):
        sizes = {code: max(dtype.bits, 1) for code, dtype in SAFETENSORS.items()}
        self.assertEqual(len(sizes), 22)
        for code, bits in sizes.items():
            tensors = gpumem.safetensors(self.file(content=pack({"t": entry(code, [8], 0, bits)}, DATA[:bits], 7)),
                                         on_misaligned="copy")
            self.assertEqual(tensors["t"].nbytes, bits, code)

    def test_misaligned(self):
        path = self.file(content=three(pad=2))
        start = len(three(pad=2)) - 500
        tensors = gpumem.safetensors(path)
        self.assertEqual(tensors.misaligned, ["a"])
        with self.assertRaises(gpumem.MisalignedError) as raised:
            tensors["a"]
        self.assertEqual((raised.exception.name, raised.exception.offset, raised.exception.alignment), ("a", start, 4))
        for word in ("'a'", str(start), "gpumem.align", "on_misaligned='copy'", str(path)):
            self.assertIn(word, str(raised.exception))
        self.assertEqual(tensors["b.weight"].offset, start + 24)
        tensors = gpumem.safetensors(path, alignment=256)
        self.assertEqual(tensors.misaligned, ["a", "b.weight", "c"])

    def test_copies(self):
        tensors = gpumem.safetensors(self.file(content=three(pad=1)), on_misaligned="copy")
        self.assertEqual(fake("fake_allocations"), 0)
        first, second = tensors["a"], tensors["b.weight"]
        self.assertEqual(fake("fake_allocations"), 2)
        taken = Consumer(second.__dlpack__(max_version=(1, 0)))
        self.assertEqual((taken.bytes(140), taken.tensor.data % 256, taken.flags), (DATA[24:164], 0, 2))
        with self.assertRaises(ValueError):
            first.memory
        del first, second, tensors
        self.assertEqual(fake("fake_allocations"), 1)
        taken.drop()
        self.assertEqual(fake("fake_allocations"), 0)
        tensors = gpumem.safetensors(self.file("host", three(pad=1)), on_misaligned="copy")
        self.assertEqual(bytes(tensors["a"].memory), DATA[:24])

    def test_wrong_arguments(self):
        path = self.file(content=three())
        for wrong in ({"mode": "w"}, {"on_misaligned": "ignore"}, {"alignment": 3}, {"alignment": 0}):
            with self.assertRaises(ValueError):
                gpumem.safetensors(path, **wrong)
        with self.assertRaisesRegex(ValueError, "^mode is 'r', 'r\\+' or 'copy', not 'w\\+'$"):
            gpumem.safetensors(path, "w+")
        with self.assertRaises(FileNotFoundError):
            gpumem.safetensors(self.gpu / "none")
        with self.assertRaises(IsADirectoryError):
            gpumem.safetensors(self.gpu)
        os.mkfifo(self.folder / "fifo")
        with self.assertRaises(OSError):
            gpumem.safetensors(self.folder / "fifo")


    def test_changed_meanwhile(self):
        """The header that is read does not belong to the memory that was opened."""
        path = self.file(content=three())

        def read(fd, name):
            path.write_bytes(three(pad=8))
            return _header.read(fd, name)
        with unittest.mock.patch.object(_safetensors, "_header", unittest.mock.Mock(read=read)):
            with self.assertRaisesRegex(ValueError, f"{path} changed its size"):
                gpumem.safetensors(path)


T = entry("U8", [10], 0, 10)
HUGE = "9" * 5000
BAD = (
    (b"", "0 bytes is no safetensors"),
    (b"1234567", "7 bytes is no safetensors"),
    ((100_000_001).to_bytes(8, "little") + b"{}", "no safetensors file, or damaged"),
    ((2**64 - 1).to_bytes(8, "little") + b"{}", "no safetensors file, or damaged"),
    ((3).to_bytes(8, "little") + b"{}", "does not fit"),
    (pack("", b""), "begin with '{'"),
    (pack(" {}", b""), "begin with '{'"),
    (pack("[]", b""), "begin with '{'"),
    (pack("{", b""), "not as the format"),
    (pack("{} x", b""), "not as the format"),
    (pack(b"{\"\xff\":1}", b""), "not as the format"),
    (pack("{}", b"x"), "1 bytes of data"),
    (pack('{"a":' + "[" * 200000, b""), "nested too deeply"),
    (pack(json.dumps({"t": T})[:-1] + "," + json.dumps({"t": T})[1:], DATA[:10]), "'t' is there twice"),
    (pack('{"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"), "'dtype' is there twice"),
    (pack({"__metadata__": {"a": 1}}, b""), "__metadata__ is not"),
    (pack({"__metadata__": []}, b""), "__metadata__ is not"),
    (pack('{"__metadata__":{"a":"\\ud800"}}', b""), "not as the format"),
    (pack('{"\\ud800":{}}', b""), "not as the format"),
    (pack('{"a\\u0000":{}}', b""), "not as the format"),
    (pack("{}\0", b""), "contains a NUL"),
    (pack('{"t":{"dtype":"U8","shape":[1\0],"data_offsets":[0,1]}}', b"x"), "contains a NUL"),
    (pack("{}{}", b""), "not as the format"),
    (pack({"t": 1}, b""), "'t': its entry is not an object"),
    (pack({"t": {"dtype": "U8", "shape": [1]}}, b"x"), "'t': no data_offsets"),
    (pack({"t": {"dtype": "U8", "data_offsets": [0, 1]}}, b"x"), "'t': no shape"),
    (pack({"t": {"shape": [1], "data_offsets": [0, 1]}}, b"x"), "'t': no dtype"),
    (pack({"t": entry("F33", [1], 0, 1)}, b"x"), "'t': unknown dtype 'F33'"),
    (pack({"t": None}, b""), "'t': its entry is not an object"),
    (pack('{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":{"a":1,"a":1}}}', b"x"), "'a' is there twice"),
    (pack({"t": entry(["U8"], [1], 0, 1)}, b"x"), "'t': unknown dtype"),
    (pack({"t": entry("U8", 1, 0, 1)}, b"x"), "'t': shape is not a list"),
    (pack({"t": entry("U8", [-1], 0, 1)}, b"x"), "'t': shape is not a list"),
    (pack({"t": entry("U8", [True], 0, 1)}, b"x"), "'t': shape is not a list"),
    (pack({"t": entry("U8", ["1"], 0, 1)}, b"x"), "'t': shape is not a list"),
    (pack({"t": entry("U8", [1.0], 0, 1)}, b"x"), "'t': shape is not a list"),
    (pack('{"t":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', b"x"), "not as the format"),
    (pack('{"t":{"dtype":"U8","shape":[%s],"data_offsets":[0,1]}}' % HUGE, b"x"), "not as the format"),
    (pack({"t": entry("U8", [2**63], 0, 1)}, b"x"), "'t': shape is not a list"),
    (pack({"t": entry("U8", [2**40, 2**40], 0, 1)}, b"x"), "'t': its shape is too large"),
    (pack({"t": entry("U8", [0, 2**40, 2**40], 0, 0)}, b""), "'t': its shape is too large"),
    (pack({"t": entry("F64", [2**62], 0, 8)}, DATA[:8]), "'t': 4611686018427387904 elements of F64 are not the 8 bytes"),
    (pack({"t": entry("F32", [2], 0, 4)}, DATA[:4]), "'t': 2 elements of F32 are not the 4 bytes"),
    (pack({"t": entry("F4", [3], 0, 2)}, DATA[:2]), "'t': 3 elements of 4 bits do not end"),
    (pack({"t": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}}, b"x"), "'t': data_offsets are 3"),
    (pack({"t": {"dtype": "U8", "shape": [1], "data_offsets": {}}}, b"x"), "'t': data_offsets is not a list"),
    (pack({"t": entry("U8", [1], 1, 0)}, b"x"), "'t': it begins at 1, behind its end at 0"),
    (pack({"t": entry("U8", [11], 0, 11)}, DATA[:10]), "'t': it ends at 11; the file has 10"),
    (pack({"t": T, "u": entry("U8", [6], 9, 15)}, DATA[:15]), "'u' overlaps 't'"),
    (pack({"t": T, "u": T}, DATA[:10]), "'u' overlaps 't'"),
    (pack({"t": T, "u": entry("U8", [4], 11, 15)}, DATA[:15]), "'u' begins at 11: the bytes from 10"),
    (pack({"t": entry("U8", [9], 1, 10)}, DATA[:10]), "'t' begins at 1: the bytes from 0"),
    (pack({"t": T}, DATA[:12]), "end at 10; the file has 12"),
)


class Hostile(Case):
    def test_what_is_refused(self):
        for number, (content, message) in enumerate(BAD):
            with self.subTest(number=number, content=content[:100]):
                path = self.file(content=content)
                with self.assertRaises(ValueError) as raised:
                    gpumem.safetensors(path)
                self.assertRegex(str(raised.exception), message)
                self.assertIn(str(path), str(raised.exception))
                self.assertLess(len(str(raised.exception)), 1000)
                with self.assertRaises(ValueError):
                    gpumem.align(path, self.folder / "out")
                self.assertFalse((self.folder / "out").exists())

    def test_odd_but_good(self):
        """What the format allows and few write."""
        tensor = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]%s}'
        for text in ('{}', '{}  \n\t ', '{"__metadata__":{}}', '{"__metadata__":{"a":"\\u0000\\ud83d\\ude00"}}',
                     '{"__metadata__":null}', '{"t":%s}' % (tensor % ',"more":[1.5,{"a":1e-400}],"x":18446744073709551616'),
                     '{"t":%s}' % (tensor % ',"more":[null,{"x":[true]},"y",-5]'), '{"":%s}' % (tensor % ""),
                     '{ "\u00e9\\n\\ud83d\\ude00" : %s }' % (tensor % ""), '{"t\\/":%s}' % (tensor % ""),
                     '{"t":{"dtype":"U8","shape":[],"data_offsets":[-0,1]}}',
                     '{"t":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}',
                     '{"t":{"dtype":"F64","shape":[9223372036854775807,0],"data_offsets":[1,1]},"u":%s}' % (tensor % "")):
            with self.subTest(text=text):
                data = b"x" if '"dtype"' in text else b""
                self.assertTrue(self.check(text.encode(), data))
                gpumem.align(self.file("disk", pack(text, data)), self.gpu / "aligned")

    def check(self, text, data):
        """The file is refused, or its tensors are those that Python's parser finds."""
        path = self.file("host", pack(text, data))
        try:
            tensors = gpumem.safetensors(path, on_misaligned="copy")
        except ValueError:
            return False
        wanted = json.loads(text)
        self.assertEqual(tensors.metadata, wanted.pop("__metadata__", {}) or {})
        self.assertEqual(list(tensors), list(wanted))
        for name, tensor in wanted.items():
            view, (begin, end) = tensors[name], tensor["data_offsets"]
            self.assertEqual((view.dtype, view.shape), (SAFETENSORS[tensor["dtype"]].name, tuple(tensor["shape"])))
            self.assertEqual(bytes(view.memory), data[begin:end])
        return True

    def test_random_changes(self):
        """Whatever becomes of a header, it is a ValueError or a header that holds."""
        rng, accepted = random.Random(SEED), 0
        start = three()
        snippets = [b"9", b"-", b"[", b"]", b"{", b"}", b'"', b",", b":", b"0", b"1e9", b"null", b"true", b"\\u0000",
                    b"\xff", b"\0", b"18446744073709551616", b"F32", b"__metadata__", b"data_offsets", b" ", b"\\", b"\n"]
        for turn in range(4000):
            text = bytearray(start[8:-500])
            for _ in range(rng.randint(1, 4)):
                at, length = rng.randrange(len(text) + 1), rng.choice((0, 0, 1, 1, 2, 8, 60))
                text[at:at + length] = rng.choice(snippets) if rng.random() < 0.7 else rng.randbytes(rng.randint(0, 3))
            try:
                accepted += self.check(bytes(text), DATA)
            except BaseException as error:
                self.fail(f"GPUMEM_SEED={SEED}, turn {turn}: {bytes(text)!r}: {error!r}")
        self.assertGreater(accepted, 0)


class Aligning(Case):
    def check(self, content, alignment=256):
        """Aligns; the result has to be the same tensors, and the report to be true."""
        source, target = self.file("disk", content), self.gpu / "aligned"
        report = gpumem.align(source, target, alignment)
        before, after = gpumem.safetensors(self.file("host", content), on_misaligned="copy"), gpumem.safetensors(target)
        self.assertEqual(list(before), list(after))
        self.assertEqual(before.metadata, after.metadata)
        self.assertEqual(after.misaligned, report.misaligned)
        self.assertEqual(sorted([*report.aligned, *report.viewable, *report.misaligned]), sorted(after))
        for name in set(after) - set(report.misaligned):
            self.assertEqual(bytes(before[name].memory), bytes(after[name].memory))
        for name in report.aligned:
            if after[name].nbytes:
                self.assertEqual(after[name].offset % alignment, 0)
        for name in report.viewable:
            self.assertNotEqual(after[name].offset % alignment, 0)
        return report

    def test_the_first_is_aligned(self):
        report = self.check(three(pad=3))
        self.assertEqual((report.aligned, report.viewable, report.misaligned), (["a"], ["b.weight", "c"], []))
        self.assertEqual(report.data_start % 256, 0)

    def test_most_are_aligned(self):
        """The data is put where the many fit, not where it begins."""
        header = {"odd": entry("U8", [1], 0, 1), "x": entry("F32", [64], 1, 257), "y": entry("F32", [60], 257, 497),
                  "z": entry("F64", [0], 497, 497)}
        report = self.check(pack(header, DATA[:497]))
        self.assertEqual((report.aligned, report.viewable, report.misaligned), (["x", "y", "z"], ["odd"], []))

    def test_what_cannot_be_aligned(self):
        header = {"a": entry("F32", [1], 0, 4), "odd": entry("U8", [1], 4, 5), "b": entry("F32", [1], 5, 9),
                  "c": entry("F32", [1], 9, 13)}
        report = self.check(pack(header, DATA[:13]))
        self.assertEqual((report.misaligned, len(report.aligned), len(report.viewable)), (["a"], 1, 2))

    def test_alignments(self):
        for alignment in (1, 2, 8, 64, 4096, 1 << 20):
            self.check(three(pad=5), alignment)
        for alignment in (0, 3, -256, 1 << 21, 1 << 64, (1 << 64) + 256):
            with self.assertRaises(ValueError):
                gpumem.align(self.file("disk", three()), self.gpu / "out", alignment)

    def test_padding_is_not_added_to_padding(self):
        first = self.check(three(pad=1000))
        (self.gpu / "aligned").rename(self.gpu / "once")
        again = gpumem.align(self.gpu / "once", self.gpu / "twice")
        self.assertEqual(first, again)
        self.assertEqual((self.gpu / "once").read_bytes(), (self.gpu / "twice").read_bytes())
        self.assertLess(first.data_start, 600)

    def test_onto_itself(self):
        path = self.file(content=three(pad=1))
        link = self.gpu / "link"
        link.symlink_to(path)
        path.chmod(0o640)
        wanted = gpumem.align(path, self.gpu / "aligned")
        self.assertEqual(gpumem.align(path, link), wanted)
        self.assertTrue(link.is_symlink())
        self.assertEqual(path.read_bytes(), (self.gpu / "aligned").read_bytes())
        self.assertEqual(path.stat().st_mode & 0o777, 0o640)
        self.assertEqual(gpumem.align(path, path), wanted)
        self.assertEqual(len(list(self.gpu.iterdir())), 3)

    def test_onto_what_is_no_file(self):
        """A device or the like is not removed, as an unfinished file is."""
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        with self.assertRaisesRegex(ValueError, f"{pipe} is no regular file"):
            gpumem.align(self.file("disk", three()), pipe)
        self.assertTrue(pipe.is_fifo())
        with self.assertRaises(IsADirectoryError):
            gpumem.align(self.file("disk", three()), self.gpu)
        with self.assertRaises(IsADirectoryError):
            gpumem.align(self.file("disk", three()), f"{self.gpu}/none/")
        for path in ("", self.gpu / "none" / "new"):
            with self.assertRaises(FileNotFoundError):
                gpumem.align(self.file("disk", three()), path)

    def test_paths(self):
        source, target = self.file("disk", three(), "t\xe9nsors"), self.gpu / "aligned"
        wanted = gpumem.align(source, target)
        self.assertEqual(gpumem.align(os.fsencode(source), os.fsencode(target)), wanted)
        self.assertEqual(gpumem.align(str(source), str(target)), wanted)
        for paths in ((f"{source}\0", target), (source, f"{target}\0".encode())):
            with self.assertRaisesRegex(ValueError, "cannot contain NUL"):
                gpumem.align(*paths)
        with self.assertRaises(FileNotFoundError) as raised:
            gpumem.align(self.gpu / "none", target)
        error = raised.exception
        self.assertEqual((error.errno, error.filename, error.filename2), (errno.ENOENT, str(self.gpu / "none"), str(target)))

    def fails_unchanged(self, handler, error):
        """Fails in the middle of writing, with a signal; the old file and its folder are what they were."""
        old = self.file(content=three(), name="old")
        large = self.file(content=pack({"t": entry("U8", [1 << 20], 0, 1 << 20)}, bytes(1 << 20)), name="large")
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(signal.signal, signal.SIGXFSZ, signal.signal(signal.SIGXFSZ, handler))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limit[1]))
        try:
            for target in (old, self.gpu / "new"):
                with self.assertRaises(error) as caught:
                    gpumem.align(large, target)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        self.assertEqual(sorted(self.gpu.iterdir()), [large, old])
        self.assertEqual(old.read_bytes(), three())
        return caught.exception

    def test_a_failure_changes_nothing(self):
        self.assertEqual(self.fails_unchanged(signal.SIG_IGN, OSError).errno, errno.EFBIG)

    def test_an_interrupt_is_not_lost(self):
        self.fails_unchanged(signal.default_int_handler, KeyboardInterrupt)

    def test_over_a_longer_file(self):
        target = self.file(content=b"x" * 100000, name="aligned")
        self.check(three())
        self.assertLess(target.stat().st_size, 2000)

    def test_by_brute_force(self):
        """No other padding makes more tensors viewable, or as many and more of them aligned."""
        rng = random.Random(SEED)
        for turn in range(40):
            header, at = {}, 0
            for number in range(rng.randint(1, 8)):
                code = rng.choice(("U8", "BF16", "F32", "F64"))
                size = rng.randint(0, 3) * {"U8": 1, "BF16": 2, "F32": 4, "F64": 8}[code]
                header[f"t{number}"] = entry(code, [size // {"U8": 1, "BF16": 2, "F32": 4, "F64": 8}[code]], at, at + size)
                at += size
            alignment = rng.choice((1, 4, 16, 32))
            text = json.dumps(header).encode()
            report = self.check(pack(text, DATA[:at], rng.randint(0, 9)), alignment)
            full = [(t["data_offsets"][0], SAFETENSORS[t["dtype"]].alignment) for t in header.values() if t["shape"][0]]

            def value(start):
                return (sum((start + begin) % unit == 0 for begin, unit in full),
                        sum((start + begin) % alignment == 0 for begin, _ in full))
            best = max(value(8 + len(text) + pad) for pad in range(64))
            self.assertEqual(value(report.data_start), best, f"GPUMEM_SEED={SEED}, turn {turn}: {text!r}, {alignment}")


class Typed(unittest.TestCase):
    def test_what_is_public_has_its_docstring(self):
        for name in gpumem.__all__:
            self.assertTrue(getattr(gpumem, name).__doc__, name)
        self.assertTrue(re.fullmatch(r"\d+\.\d+\.\d+", gpumem.__version__))


if __name__ == "__main__":
    unittest.main()
