# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Helpers of the tests: a library that simulates libgpumem and libcuda on ordinary files, consumers of
DLPack, and safetensors files."""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent.parent
FOLDER = Path(tempfile.mkdtemp(prefix="gpumem-python."))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
sys.path.insert(0, str(PACKAGE))


def _build_fake() -> str:
    library = FOLDER / "libfake.so"
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if not compiler:
        raise unittest.SkipTest("no C compiler here")
    client = ROOT / "client"
    sources = [Path(__file__).with_name("fake.c"), *(client / "lib/safetensors").glob("*.c"),
               ROOT / "common/io.c", ROOT / "common/text/utf8.c",
               *(client / f"{name}.c" for name in ("lib/replace", "core/beneath", "core/beneath_find", "core/error",
                                                   "core/process"))]
    subprocess.run([*compiler.split(), "-shared", "-fPIC", "-O1", "-Wall", "-D_GNU_SOURCE", "-I", ROOT, "-o", library,
                    *sources, "-ljansson", "-lpthread"], check=True)
    return str(library)


os.environ["GPUMEM_LIBRARY"] = _build_fake()
import gpumem  # noqa: E402
from gpumem import _cuda, _dlpack  # noqa: E402

_cuda.LIBRARY = os.environ["GPUMEM_LIBRARY"]
FAKE = ctypes.CDLL(os.environ["GPUMEM_LIBRARY"])


def fake(name: str) -> int:
    return ctypes.c_int.in_dll(FAKE, name).value


def set_fake(name: str, value: int) -> None:
    ctypes.c_int.in_dll(FAKE, name).value = value


def retained(device: int) -> int:
    return (ctypes.c_int * 2).in_dll(FAKE, "fake_retained")[device]


class Case(unittest.TestCase):
    """Has a folder for each kind of volume; checks that a test leaves no lease, allocation or tensor."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=FOLDER))
        for name in ("gpu0", "vulkan", "host", "simulated", "disk"):
            (self.folder / name).mkdir()
        self.gpu, self.host = self.folder / "gpu0", self.folder / "host"
        self.addCleanup(self.all_gone)

    def all_gone(self) -> None:
        gc.collect()
        self.assertEqual(fake("fake_leases"), 0)
        self.assertEqual(fake("fake_allocations"), 0)
        self.assertEqual([retained(0), retained(1)], [0, 0])
        self.assertEqual(_dlpack._live, {})
        self.assertEqual(_dlpack._offered, {})

    def file(self, folder: str = "gpu0", content: bytes = bytes(range(256)) * 16, name: str = "file") -> Path:
        path = self.folder / folder / name
        path.write_bytes(content)
        return path


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi))


class Consumer:
    """Consumes a capsule as a framework does, with its own declaration of the structures."""

    USED = {"dltensor": b"used_dltensor", "dltensor_versioned": b"used_dltensor_versioned"}

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int),
                    ("ndim", ctypes.c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                    ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                    ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]

    def __init__(self, capsule: Any) -> None:
        self.name = repr(capsule).split('"')[1]
        self.address = _pointer(capsule, self.name.encode())
        versioned = self.name == "dltensor_versioned"
        words = (ctypes.c_uint64 * 4).from_address(self.address)
        self.version = (words[0] & 0xffffffff, words[0] >> 32) if versioned else None
        self.flags = words[3] if versioned else None
        self.tensor = self.Tensor.from_address(self.address + (32 if versioned else 0))
        deleter_at = self.address + (16 if versioned else ctypes.sizeof(self.Tensor) + 8)
        self.deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
            ctypes.c_void_p.from_address(deleter_at).value)
        self.shape = list(self.tensor.shape[:self.tensor.ndim])
        self.strides = list(self.tensor.strides[:self.tensor.ndim])
        _rename(capsule, self.USED[self.name])

    def bytes(self, size: int) -> bytes:
        return ctypes.string_at(self.tensor.data, size)

    def drop(self) -> None:
        self.deleter(self.address)


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def pack(header: Any, data: bytes, pad: int = 0) -> bytes:
    """A safetensors file; the header as an object, a text or bytes."""
    text = header if isinstance(header, bytes) else header.encode() if isinstance(header, str) \
        else json.dumps(header).encode()
    text += b" " * pad
    return len(text).to_bytes(8, "little") + text + data


class Current:
    """A current CUDA context of the fake's device N, which the caller made."""

    def __init__(self, device: int) -> None:
        self.device = device

    def __enter__(self) -> None:
        self.primary = _cuda.Primary(self.device)
        self.primary.__enter__()

    def __exit__(self, *_: object) -> None:
        self.primary.__exit__()
        self.primary.release()


__all__ = ["Case", "Consumer", "Current", "entry", "fake", "gpumem", "pack", "retained", "set_fake"]
