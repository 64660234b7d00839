# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Buffers and views: opening, ranges, the interfaces, whose memory it is and for how long."""

import ctypes
import errno
import gc
import os
import subprocess
import sys
import threading
import types
import unittest
import unittest.mock

from .support import PACKAGE, Case, Consumer, Current, fake, gpumem, retained, set_fake

try:
    import numpy
except ImportError:
    numpy = None


class Opening(Case):
    def test_what_a_buffer_says(self):
        path = self.file()
        with gpumem.open(path, "r+") as buffer:
            self.assertEqual((buffer.size, buffer.device, buffer.path), (4096, 0, str(path)))
            self.assertTrue(buffer.uuid.startswith("GPU-74686520-6669-"))
            self.assertFalse(buffer.read_only or buffer.private)
            self.assertIn("gpu0", repr(buffer))
        with gpumem.open(self.file("host")) as buffer:
            self.assertEqual((buffer.device, buffer.uuid, buffer.read_only), (None, None, True))
        with gpumem.open(path) as buffer:
            self.assertTrue(buffer.private and not buffer.read_only)
        with gpumem.open(self.file(name="trusted")) as buffer:
            self.assertTrue(buffer.read_only and not buffer.private)

    def test_failures(self):
        with self.assertRaises(FileNotFoundError) as raised:
            gpumem.open(self.gpu / "none")
        self.assertEqual(raised.exception.filename, str(self.gpu / "none"))
        with self.assertRaises(IsADirectoryError):
            gpumem.open(self.gpu)
        with self.assertRaises(OSError) as raised:
            gpumem.open(self.file("disk"))
        self.assertEqual(raised.exception.errno, errno.ENOTSUP)
        self.assertIn("not on gpumemfs", str(raised.exception))
        for mode in ("w", "rb", "", None, "a"):
            with self.assertRaises(ValueError):
                gpumem.open(self.file(), mode)
        with self.assertRaises(ValueError):
            gpumem.open("a\0b")

    def test_a_library_that_is_not_there(self):
        code = "import gpumem\ntry: gpumem.open('x')\nexcept OSError as e: print(e.errno, e)"
        said = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE, text=True, capture_output=True, check=True,
                              env={**os.environ, "GPUMEM_LIBRARY": "/nowhere/libgpumem.so.0"}).stdout
        self.assertIn("2 ", said)
        self.assertIn("GPUMEM_LIBRARY", said)

    def test_an_empty_file(self):
        path = self.file(content=b"")
        with gpumem.open(path, "r+") as buffer:
            self.assertEqual(len(buffer.memory), 0)
            self.assertEqual(buffer.__cuda_array_interface__["data"][0], 0)
            taken = Consumer(buffer.__dlpack__())
            self.assertEqual((taken.tensor.data, taken.shape), (None, [0]))
            taken.drop()

    def test_extend(self):
        path = self.file("host", b"a" * 100)
        buffer = gpumem.open(path, "r+")
        with open(path, "ab") as file:
            file.write(b"b" * 100)
        self.assertEqual((buffer.size, buffer.extend(), len(buffer)), (100, 200, 200))
        self.assertEqual(bytes(buffer.memory[98:102]), b"aabb")
        buffer.close()

    def test_closed(self):
        buffer = gpumem.open(self.file("host"))
        buffer.close()
        buffer.close()
        self.assertEqual((buffer.closed, fake("fake_leases")), (True, 0))
        for use in (lambda: buffer.size, lambda: buffer.memory, lambda: buffer.view("uint8"),
                    lambda: buffer.__dlpack__(), buffer.extend, buffer.__enter__):
            with self.assertRaises(ValueError):
                use()


class Views(Case):
    def test_ranges(self):
        with gpumem.open(self.file("host"), "r+") as buffer:
            view = buffer.view("float32", (2, 3), 64)
            self.assertEqual((view.dtype, view.shape, view.offset, view.nbytes, len(view)),
                             ("float32", (2, 3), 64, 24, 2))
            self.assertEqual(buffer.view("F64").shape, (512,))
            self.assertEqual(buffer.view("int16", 5, 4086).shape, (5,))
            self.assertEqual(buffer.view("uint8", (), 4095).shape, ())
            self.assertEqual(buffer.view("float64", (0, 7), 4096).nbytes, 0)
            for dtype, shape, offset in (
                    ("float32", (1,), 2), ("float64", (1,), 4), ("uint8", (1,), -1), ("uint8", (1,), 4097),
                    ("uint8", (4097,), 0), ("float32", (1024,), 4), ("uint8", (-1,), 0), ("float33", (1,), 0),
                    ("uint8", (2**62, 4), 0), ("uint8", (2**40, 2**40, 2**40), 0), ("uint8", (1.5,), 0),
                    ("uint8", None, 5000), ("float4_e2m1fn", (3,), 0), ("uint8", "ab", 0), (">f4", (1,), 0)):
                with self.assertRaises(ValueError, msg=(dtype, shape, offset)):
                    buffer.view(dtype, shape, offset)

    def test_of_a_view(self):
        with gpumem.open(self.file("host")) as buffer:
            view = buffer.view("bfloat16", (4, 8), 64)
            self.assertEqual((view.view("uint8").shape, view.view("uint8").offset), ((64,), 64))
            self.assertEqual(bytes(view.view("int32", (2, 2), 8).memory), bytes(range(72, 88)))
            for wrong in (("int32", (17,), 0), ("int32", (1,), 2), ("uint8", 1, 65), ("uint8", 1, -1)):
                with self.assertRaises(ValueError):
                    view.view(*wrong)

    def test_names_of_types(self):
        class Torch:
            def __str__(self):
                return "torch.bfloat16"
        with gpumem.open(self.file("host")) as buffer:
            self.assertEqual(buffer.view(Torch(), 1).dtype, "bfloat16")
            self.assertEqual(buffer.view("F8_E4M3", 1).dtype, "float8_e4m3fn")
            self.assertEqual(buffer.view(bool, 1).dtype, "bool")
            if numpy:
                self.assertEqual(buffer.view(numpy.float16, 1).dtype, "float16")
                self.assertEqual(buffer.view(numpy.dtype("<i8"), 1).dtype, "int64")
                self.assertEqual(buffer.view(numpy.bool_, 1).dtype, "bool")
                with self.assertRaises(ValueError):
                    buffer.view(numpy.dtype(">i8"), 1)

    def test_memory(self):
        path = self.file("host")
        with gpumem.open(path, "r+") as buffer:
            memory = buffer.view("uint16", 4, 16).memory
            self.assertEqual((bytes(memory), memory.format, memory.readonly), (bytes(range(16, 24)), "B", False))
            memory[0] = 99
            self.assertEqual(buffer.provider, "mmap")
        self.assertEqual(path.read_bytes()[16], 99)
        with gpumem.open(path) as buffer:
            self.assertTrue(buffer.memory.readonly)
            with self.assertRaises(TypeError):
                buffer.memory[0] = 1

    def test_memory_of_a_gpu_through_its_bar(self):
        path = self.file()
        with gpumem.open(path, "r+") as buffer:
            buffer.memory[:3] = b"bar"
            buffer.flush()
        self.assertEqual(path.read_bytes()[:3], b"bar")
        trusted = self.file(name="trusted")
        with gpumem.open(trusted) as buffer:
            self.assertTrue(buffer.memory.readonly)

    @unittest.skipIf(sys.version_info < (3, 12), "the buffer protocol in Python came with 3.12")
    def test_buffer_protocol(self):
        with gpumem.open(self.file("host"), "r+") as buffer:
            self.assertEqual(bytes(memoryview(buffer)), bytes(range(256)) * 16)
            typed = memoryview(buffer.view("int32", (2, 3), 4))
            self.assertEqual((typed.format, typed.shape, typed[0, 0]), ("i", (2, 3), 0x07060504))
            self.assertEqual(memoryview(buffer.view("float32", (), 0)).shape, ())
            self.assertEqual(memoryview(buffer.view("float16", 3)).format, "e")
            with self.assertRaises(BufferError):
                memoryview(buffer.view("bfloat16", 3))
        with gpumem.open(self.file("host")) as buffer:
            self.assertTrue(memoryview(buffer).readonly)
        with gpumem.open(self.file()) as buffer, self.assertRaises(BufferError):
            memoryview(buffer)


class Exports(Case):
    def test_pieces(self):
        path = self.file(content=bytes(range(256)) * 48)
        with gpumem.open(path, "r+") as buffer:
            pieces = buffer.export()
        self.assertEqual([piece[1:] for piece in pieces], [
            ({"cuda"}, 0, 4096, 0, 12288, b"the first GPU's\0"),
            ({"opaque", "dmabuf"}, 4096, 8192, 512, 12288, b"the first GPU's\0")])
        self.assertEqual(os.pread(pieces[1].fd, 2, 257), b"\1\2")
        for piece in pieces:
            piece.close()
            with self.assertRaises(OSError):
                os.fstat(piece.fd)

    def test_refusals(self):
        with gpumem.open(self.file("host"), "r+") as buffer, self.assertRaises(OSError) as raised:
            buffer.export()
        self.assertEqual(raised.exception.errno, errno.ENOTSUP)
        trusted = self.file(name="trusted")
        with gpumem.open(trusted) as buffer:
            with self.assertRaises(PermissionError) as raised:
                buffer.export()
            self.assertEqual(raised.exception.filename, str(trusted))
            for piece in buffer.export(for_reading=True):
                piece.close()
        with self.assertRaises(ValueError):
            buffer.export()


class OtherVendors(Case):
    """Files of backend=vulkan in programs with torch for GPUs of AMD and Intel: torch and the drivers are doubles."""

    def version(self, **values):
        torch = types.ModuleType("torch")
        torch.version = types.SimpleNamespace(**values)
        patch = unittest.mock.patch.dict(sys.modules, torch=torch)
        patch.start()
        self.addCleanup(patch.stop)

    def driver(self, number):
        set_fake("fake_driver", number)
        self.addCleanup(set_fake, "fake_driver", 0)

    def test_rocm(self):
        self.version(hip="6.2", cuda=None)
        self.driver(1)
        path = self.file("vulkan")
        with gpumem.open(path, "r+") as buffer:
            view = buffer.view("float16", (3, 5), 32)
            self.assertEqual(view.__dlpack_device__(), (10, 3))
            taken = Consumer(view.__dlpack__(max_version=(1, 0)))
            self.assertEqual(view.__cuda_array_interface__["data"], (taken.tensor.data, False))
            with self.assertRaises(BufferError):
                view.__dlpack__(copy=True)
            with self.assertRaises(BufferError):
                view.__dlpack__(dl_device=(1, 0))
            self.assertFalse(hasattr(view, "__array_interface__"))
            buffer.memory[40] = 99
        del buffer, view
        self.assertEqual((taken.tensor.device_type, taken.tensor.device_id, taken.shape, taken.flags), (10, 3, [3, 5], 0))
        self.assertEqual(taken.bytes(30), bytes(range(32, 40)) + b"c" + bytes(range(41, 62)))
        taken.drop()

    def test_one_api(self):
        self.version(hip=None, xpu="20250000")
        self.driver(2)
        with gpumem.open(self.file("vulkan"), "r+") as buffer:
            self.assertEqual(buffer.__dlpack_device__(), (14, 3))
            taken = Consumer(buffer.__dlpack__())
            self.assertEqual((taken.tensor.device_type, taken.bytes(3)), (14, b"\0\1\2"))
            self.assertFalse(hasattr(buffer, "__cuda_array_interface__"))
            taken.drop()

    def test_without_a_driver(self):
        self.version(hip="6.2")
        with gpumem.open(self.file("vulkan"), "r+") as buffer, self.assertRaises(OSError) as raised:
            buffer.__dlpack__()
        self.assertEqual(raised.exception.errno, errno.ENODEV)

    def test_an_empty_file(self):
        self.version(hip="6.2")
        with gpumem.open(self.file("vulkan", b""), "r+") as buffer:
            self.assertEqual(buffer.__dlpack_device__(), (1, 0))

    def test_other_programs(self):
        """Without such a torch, and without CUDA for the file's GPU, a file is an array of the CPU."""
        self.driver(1)
        set_fake("fake_visible", 0)
        self.addCleanup(set_fake, "fake_visible", 2)
        for values in ({}, {"hip": None, "cuda": "12.4"}):
            self.version(**values)
            with gpumem.open(self.file("vulkan"), "r+") as buffer:
                self.assertEqual(buffer.__dlpack_device__(), (1, 0))
                self.assertTrue(hasattr(buffer, "__array_interface__"))
        self.version(hip="6.2")
        with gpumem.open(self.file("host"), "r+") as buffer:
            self.assertEqual(buffer.__dlpack_device__(), (1, 0))


class ArrayInterfaces(Case):
    def test_cuda(self):
        path = self.file()
        with gpumem.open(path, "r+") as buffer, Current(1):
            view = buffer.view("float16", (3, 5), 32)
            interface = view.__cuda_array_interface__
            address, read_only = interface["data"]
            self.assertEqual(ctypes.string_at(address, 30), bytes(range(32, 62)))
            self.assertEqual({**interface, "data": None}, {
                "shape": (3, 5), "typestr": "<f2", "data": None, "strides": None, "version": 3, "stream": None})
            self.assertFalse(read_only)
            self.assertEqual(buffer.__cuda_array_interface__["typestr"], "|u1")
            self.assertEqual(buffer.view("complex64", 1).__cuda_array_interface__["typestr"], "<c8")
            self.assertEqual(buffer.view("bool", 1).__cuda_array_interface__["typestr"], "|b1")
            for dtype in ("bfloat16", "float8_e5m2"):
                self.assertFalse(hasattr(buffer.view(dtype, 1), "__cuda_array_interface__"))
            self.assertFalse(hasattr(view, "__array_interface__"))
            self.assertEqual(buffer.view("uint8", 0).__cuda_array_interface__["data"][0], 0)

    def test_cuda_read_only(self):
        with gpumem.open(self.file(name="trusted")) as buffer, Current(1):
            self.assertTrue(buffer.__cuda_array_interface__["data"][1])

    def test_contexts(self):
        with gpumem.open(self.file(), "r+") as buffer:
            made = fake("fake_contexts_made")
            buffer.__cuda_array_interface__
            self.assertEqual((retained(1), fake("fake_contexts_made") - made), (1, 1))
            buffer.__dlpack__()
            self.assertEqual((retained(0), retained(1)), (0, 1))
            with Current(0):
                buffer.__cuda_array_interface__  # for the peer
                self.assertEqual((retained(0), retained(1)), (2, 1))
        with gpumem.open(self.file("host"), "r+") as buffer:
            made = fake("fake_contexts_made")
            self.assertFalse(hasattr(buffer, "__cuda_array_interface__"))
            self.assertEqual(fake("fake_contexts_made"), made)
            with Current(0):
                self.assertTrue(hasattr(buffer, "__cuda_array_interface__"))

    def test_a_gpu_that_is_not_visible(self):
        set_fake("fake_visible", 1)
        self.addCleanup(set_fake, "fake_visible", 2)
        with gpumem.open(self.file()) as buffer:
            for use in (buffer.__dlpack__, buffer.__dlpack_device__):
                with self.assertRaisesRegex(gpumem.CudaError, "CUDA_VISIBLE_DEVICES"):
                    use()

    @unittest.skipUnless(numpy, "no numpy here")
    def test_numpy_asarray(self):
        path = self.file("host")
        with gpumem.open(path, "r+") as buffer:
            array = numpy.asarray(buffer.view("int32", (4, 2), 8))
            self.assertEqual((array.shape, array.dtype, array[0, 0]), ((4, 2), numpy.int32, 0x0b0a0908))
            array[3, 1] = -1
        self.assertEqual(path.read_bytes()[36:40], b"\xff" * 4)
        with gpumem.open(path) as buffer:
            self.assertFalse(numpy.asarray(buffer).flags.writeable)
            with self.assertRaisesRegex(TypeError, "numpy has no bfloat16: use torch.from_dlpack, or view"):
                numpy.asarray(buffer.view("bfloat16", (4, 2), 8))
        with gpumem.open(self.file()) as buffer, self.assertRaisesRegex(TypeError, "memory of a GPU: use torch.from_dlpack"):
            numpy.asarray(buffer)


class DLPack(Case):
    def test_legacy(self):
        with gpumem.open(self.file(), "r+") as buffer:
            view = buffer.view("bfloat16", (2, 3, 4), 128)
            self.assertEqual(view.__dlpack_device__(), (2, 1))
            taken = Consumer(view.__dlpack__(stream=1))
            self.assertEqual((taken.name, taken.shape, taken.strides), ("dltensor", [2, 3, 4], [12, 4, 1]))
            tensor = taken.tensor
            self.assertEqual((tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset), (4, 16, 1, 0))
            self.assertEqual((tensor.device_type, tensor.device_id), (2, 1))
            self.assertEqual(taken.bytes(48), bytes(range(128, 176)))
            taken.drop()

    def test_versioned(self):
        with gpumem.open(self.file(name="trusted")) as buffer:
            for dtype, code in (("float8_e4m3fn", 10), ("float8_e5m2", 12), ("float8_e8m0fnu", 14), ("bool", 6)):
                taken = Consumer(buffer.view(dtype, (4, 2)).__dlpack__(max_version=(1, 0)))
                self.assertEqual((taken.name, taken.version, taken.flags), ("dltensor_versioned", (1, 1), 1))
                self.assertEqual((taken.tensor.code, taken.tensor.bits), (code, 8))
                self.assertEqual((taken.shape, taken.strides), ([4, 2], [2, 1]))
                taken.drop()
            legacy = Consumer(buffer.__dlpack__(max_version=(0, 8)))
            self.assertEqual(legacy.name, "dltensor")
            legacy.drop()
        with gpumem.open(self.file("host", name="simulated")) as buffer:
            with self.assertRaisesRegex(BufferError, "read-only"):
                buffer.__dlpack__()
            taken = Consumer(buffer.__dlpack__(max_version=(1, 2), dl_device=(1, 0), copy=False))
            self.assertEqual((taken.flags, taken.tensor.device_type), (1, 1))
            taken.drop()

    def test_scalars_and_nothing(self):
        with gpumem.open(self.file("simulated"), "r+") as buffer:
            taken = Consumer(buffer.view("float64", (), 8).__dlpack__())
            self.assertEqual((taken.shape, taken.strides, taken.bytes(8)), ([], [], bytes(range(8, 16))))
            taken.drop()
            taken = Consumer(buffer.view("float64", (3, 0, 2)).__dlpack__())
            self.assertEqual((taken.shape, taken.strides, taken.tensor.data), ([3, 0, 2], [2, 2, 1], None))
            taken.drop()

    def test_other_devices_and_copies(self):
        path = self.file()
        with gpumem.open(path, "r+") as buffer:
            view = buffer.view("uint8", 100, 3)
            for device in ((1, 0), (2, 0), (3, 0)):
                with self.assertRaises(BufferError):
                    view.__dlpack__(dl_device=device)
            taken = Consumer(view.__dlpack__(max_version=(1, 1), copy=True, dl_device=(2, 1)))
            self.assertEqual((taken.flags, taken.bytes(100)), (2, bytes(range(3, 103))))
            self.assertEqual(taken.tensor.data % 256, 0)
            ctypes.memset(taken.tensor.data, 0, 100)
            taken.drop()
        self.assertEqual(path.read_bytes()[3], 3)
        with gpumem.open(self.file("host")) as buffer:
            taken = Consumer(buffer.view("uint8", 100, 3).__dlpack__(copy=True))
            self.assertEqual((taken.bytes(100), taken.tensor.data % 64), (bytes(range(3, 103)), 0))
            taken.drop()

    def test_no_room_for_a_copy(self):
        set_fake("fake_no_memory", 1)
        self.addCleanup(set_fake, "fake_no_memory", 0)
        with gpumem.open(self.file()) as buffer, self.assertRaisesRegex(MemoryError, "OUT_OF_MEMORY"):
            buffer.copy()

    @unittest.skipUnless(numpy, "no numpy here")
    def test_numpy_takes_it(self):
        path = self.file("host")
        buffer = gpumem.open(path, "r+")
        array = numpy.from_dlpack(buffer.view("int16", (5, 3), 10))
        buffer.close()
        del buffer
        gc.collect()
        self.assertEqual((array.shape, array.dtype, array[0, 0], fake("fake_leases")), ((5, 3), numpy.int16, 0x0b0a, 1))
        del array
        self.assertEqual(fake("fake_leases"), 0)

    @unittest.skipUnless(numpy, "no numpy here")
    def test_numpy_refuses_it(self):
        """numpy drops the capsule with an exception set, and the exception must reach the caller."""
        with gpumem.open(self.file("host"), "r+") as buffer:
            for _ in range(3):
                with self.assertRaises((BufferError, RuntimeError, TypeError)):
                    numpy.from_dlpack(buffer.view("bfloat16", 3))


class Lifetimes(Case):
    def leases(self):
        return fake("fake_leases")

    def test_views_and_memoryviews_keep_it(self):
        with gpumem.open(self.file("host"), "r+") as buffer:
            view, memory = buffer.view("uint8", 5), buffer.memory
        self.assertEqual(self.leases(), 1)
        del view
        self.assertEqual(bytes(memory[:3]), b"\0\1\2")
        del memory, buffer
        self.assertEqual(self.leases(), 0)

    def test_a_tensor_keeps_it(self):
        with gpumem.open(self.file(), "r+") as buffer:
            first, second = Consumer(buffer.__dlpack__()), Consumer(buffer.view("uint8").__dlpack__(max_version=(1, 0)))
        del buffer
        gc.collect()
        self.assertEqual((self.leases(), first.bytes(3)), (1, b"\0\1\2"))
        synchronized = fake("fake_syncs")
        thread = threading.Thread(target=first.drop)
        thread.start()
        thread.join()
        self.assertEqual((self.leases(), fake("fake_syncs")), (1, synchronized))
        second.drop()
        # The pending work of the GPU was waited for.
        self.assertEqual((self.leases(), fake("fake_syncs")), (0, synchronized + 1))

    def test_a_consumer_of_an_array_interface_keeps_it(self):
        with gpumem.open(self.file(), "r+") as buffer:
            address = buffer.__cuda_array_interface__["data"][0]
        self.assertEqual((self.leases(), ctypes.string_at(address, 2)), (1, b"\0\1"))
        del buffer
        self.assertEqual(self.leases(), 0)

    def test_a_dropped_capsule(self):
        buffer = gpumem.open(self.file())
        capsule = buffer.__dlpack__()
        del buffer
        gc.collect()
        self.assertEqual(self.leases(), 1)
        del capsule
        gc.collect()
        self.assertEqual(self.leases(), 0)

    def test_a_consumed_capsule(self):
        buffer = gpumem.open(self.file())
        capsule = buffer.__dlpack__()
        taken = Consumer(capsule)
        del capsule
        gc.collect()
        taken.drop()
        del buffer
        self.assertEqual(self.leases(), 0)

    def test_cycles(self):
        buffer = gpumem.open(self.file())
        buffer.me = buffer
        del buffer
        gc.collect()
        self.assertEqual(self.leases(), 0)

    def test_copies_are_freed(self):
        buffer = gpumem.open(self.file())
        copy = buffer.view("uint8", 100).copy()
        del buffer
        self.assertEqual((self.leases(), fake("fake_allocations")), (0, 1))
        taken = Consumer(copy.__dlpack__())
        del copy
        gc.collect()
        self.assertEqual(fake("fake_allocations"), 1)
        taken.drop()
        self.assertEqual(fake("fake_allocations"), 0)

    def test_threads(self):
        path, failures = self.file(), []

        def work():
            try:
                for _ in range(200):
                    with gpumem.open(path, "r+") as buffer:
                        taken = Consumer(buffer.view("float32", (4, 4), 16).__dlpack__())
                    if taken.bytes(2) != b"\x10\x11":
                        failures.append("other bytes")
                    taken.drop()
            except BaseException as error:  # reported below
                failures.append(error)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_leases_that_are_dropped(self):
        path = self.file()
        with gpumem.open(path, "r+"), gpumem.open(path, "r+"):
            self.assertEqual(gpumem.drop_leases(path), 2)
            self.assertEqual(gpumem.drop_leases(os.fsencode(path)), 2)
        with self.assertRaises(PermissionError) as raised:
            gpumem.drop_leases(self.file(name="others"))
        self.assertEqual(raised.exception.filename, str(self.gpu / "others"))
        self.assertIn("owner", raised.exception.strerror)
        with self.assertRaises(FileNotFoundError):
            gpumem.drop_leases(self.gpu / "none")
        with self.assertRaises(OSError) as raised:
            gpumem.drop_leases(self.file("disk"))
        self.assertEqual(raised.exception.errno, errno.ENOTSUP)
        with self.assertRaises(ValueError):
            gpumem.drop_leases("no\0path")

    def test_tensors_that_outlive_the_interpreter(self):
        code = """
import ctypes, sys
from tests.support import Consumer, gpumem
buffer = gpumem.open(sys.argv[1], "r+")
view = buffer.view("uint8", 10)
taken = [Consumer(view.__dlpack__(max_version=v)) for v in (None, (1, 0))]
offered = view.__dlpack__()
ctypes.pythonapi.Py_AtExit.argtypes = [ctypes.c_void_p]
class Late:
    def __init__(self, taken): self.taken = taken
    def __del__(self):
        for one in self.taken: ctypes.CFUNCTYPE(None, ctypes.c_void_p)(one.deleter_now())(one.address)
for one in taken:
    at = one.address + (16 if one.version else 56)
    one.deleter_now = lambda at=at: ctypes.c_void_p.from_address(at).value
sys.keep = Late(taken)
print("to the end", flush=True)
"""
        said = subprocess.run([sys.executable, "-X", "dev", "-c", code, str(self.file())], cwd=PACKAGE, text=True,
                              capture_output=True, check=False)
        self.assertEqual((said.returncode, said.stdout, said.stderr), (0, "to the end\n", ""))


if __name__ == "__main__":
    unittest.main()
