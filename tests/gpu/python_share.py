#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""tests/gpu/python_share.py: PyTorch, CuPy and JAX, those that the machine has, and a process with only the CUDA driver
open a safetensors file, staged by cp, by path at once. Every tensor has the original's bytes, GPU memory has one copy of
them, and the other processes and cat see the change of any process. Run like tests/gpu/run, or by it (point_python).

Environment: GPUMEM_PYTHON_SIZE of the file (10G), GPUMEM_PYTHON the interpreter that has the
frameworks, OUT. With --backend standin it goes through the same on the stand-in driver."""

import argparse
import atexit
import concurrent.futures
import ctypes
import json
import mmap
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
PACKAGE = next((p for p in (HERE.parent.parent / "client" / "python", HERE.parent.parent / "python")
                if (p / "gpumem").is_dir()), None)
sys.path.insert(0, str(HERE))
if PACKAGE:
    sys.path.insert(1, str(PACKAGE))

MIB = 1 << 20
KINDS = (("BF16", 2), ("F32", 4), ("F16", 2), ("F8_E4M3", 1), ("I64", 8), ("F8_E5M2", 1), ("U8", 1), ("F64", 8),
         ("I32", 4), ("BOOL", 1), ("I8", 1), ("I16", 2), ("C64", 8))
LARGE = 39
CHANGED = "large.1"  # of F32, which every framework has


# --- the processes that share

class Driver:
    """No framework: libcuda through ctypes."""

    def __init__(self):
        from gpumem import _cuda
        self.cuda, self.primary = _cuda.driver(), _cuda.Primary(self.device_of_gpu0(_cuda))
        self.primary.__enter__()
        self.version = "alone"

    @staticmethod
    def device_of_gpu0(_cuda):
        _cuda.driver().cuInit(0)
        return 0

    def take(self, view):
        view.__dlpack__()
        return view

    def pointer(self, view):
        return view.__cuda_array_interface__["data"][0] if view.dtype in ("uint8", "float32") \
            else self.pointer(view.view("uint8"))

    def bytes_of(self, view):
        here = (ctypes.c_ubyte * view.nbytes)()
        self._check(self.cuda.cuMemcpyDtoH_v2(here, ctypes.c_uint64(self.pointer(view)), ctypes.c_size_t(view.nbytes)))
        return here, ctypes.addressof(here)

    def change(self, view, value):
        self._check(self.cuda.cuMemsetD8_v2(ctypes.c_uint64(self.pointer(view)), ctypes.c_ubyte(value),
                                            ctypes.c_size_t(256)))
        self._check(self.cuda.cuCtxSynchronize())

    @staticmethod
    def _check(result):
        if result:
            raise RuntimeError(f"CUDA error {result}")


class Torch:
    def __init__(self):
        import torch
        self.torch, self.version = torch, torch.__version__
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()

    def take(self, view):
        return self.torch.from_dlpack(view)

    def pointer(self, tensor):
        return tensor.data_ptr()

    def bytes_of(self, tensor):
        here = tensor.cpu()
        return here, here.data_ptr()

    def change(self, tensor, value):
        tensor.reshape(-1)[:64].view(self.torch.uint8).fill_(value)
        self.torch.cuda.synchronize()


class Cupy:
    def __init__(self):
        import cupy
        self.cupy, self.version = cupy, cupy.__version__
        cupy.zeros(1)
        cupy.cuda.Device().synchronize()

    def take(self, view):
        return self.cupy.from_dlpack(view)

    def pointer(self, array):
        return array.data.ptr

    def bytes_of(self, array):
        here = self.cupy.asnumpy(array)
        return here, here.ctypes.data

    def change(self, array, value):
        array.reshape(-1)[:64].view(self.cupy.uint8).fill(value)
        self.cupy.cuda.Device().synchronize()


class Jax:
    """Its arrays are immutable: changes go through the CPU's mapping of the memory."""

    def __init__(self):
        import jax
        import numpy
        self.jax, self.numpy, self.version = jax, numpy, jax.__version__
        jax.config.update("jax_enable_x64", True)
        if jax.default_backend() != "gpu":
            raise ImportError(f"jax runs on {jax.default_backend()} here")
        jax.numpy.zeros(1).block_until_ready()

    def take(self, view):
        return self.jax.dlpack.from_dlpack(view)

    def pointer(self, array):
        return array.unsafe_buffer_pointer()

    def bytes_of(self, array):
        here = self.numpy.ascontiguousarray(self.numpy.asarray(array))
        return here, here.ctypes.data

    change = None


FRAMEWORKS = {"torch": Torch, "cupy": Cupy, "jax": Jax, "driver": Driver}


class Sharer:
    """The commands of a process; each returns a dict."""

    def __init__(self, framework, model, source):
        self.model, self.tensors, self.views = model, {}, {}
        self.framework = FRAMEWORKS[framework]()
        with open(source, "rb") as file:
            # Private: ctypes wants a writable buffer to take the address of.
            self.source = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
        self.source_at = ctypes.addressof(ctypes.c_char.from_buffer(self.source))
        self.memcmp = ctypes.CDLL(None).memcmp
        self.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

    def ready(self):
        return {"version": self.framework.version}

    def _take(self, name):
        """The tensor as the framework's array, or as bytes if the framework lacks the type; and the error, if any."""
        view, first = self.file[name], None
        for attempt in (view, view.view("uint8")):
            try:
                tensor = self.framework.take(attempt)
            except Exception as error:
                first = first or f"{name}, {view.dtype}: {error!r}"[:200]
                continue
            self.views[name], self.tensors[name] = attempt, tensor
            break
        return first

    def _is_copy(self, name):
        view = self.views[name]
        wanted = view.view("uint8").__cuda_array_interface__["data"][0]
        return view.nbytes > 0 and self.framework.pointer(self.tensors[name]) != wanted

    def open(self):
        import gpumem
        start = time.monotonic()
        self.file = gpumem.safetensors(self.model, "r+")
        why = [error for error in map(self._take, self.file) if error]
        as_bytes = {self.file[name].dtype for name, view in self.views.items() if view.dtype != self.file[name].dtype}
        return {"n": len(self.tensors), "as_bytes": sorted(as_bytes), "why": why[:3],
                "refused": [name for name in self.file if name not in self.tensors],
                "copied": [name for name in self.tensors if self._is_copy(name)],
                "seconds": time.monotonic() - start}

    def _differs(self, name, begin=0):
        view = self.views[name]
        if not view.nbytes:
            return False
        keep, address = self.framework.bytes_of(self.tensors[name])
        differs = self.memcmp(address + begin, self.source_at + view.offset + begin, view.nbytes - begin) != 0
        del keep
        return differs

    def check(self):
        """Compares every tensor with the original, read from the staged source and not from the mount."""
        differing = [name for name in self.tensors if self._differs(name)]
        return {"differing": differing, "bytes": sum(view.nbytes for view in self.views.values())}

    def change(self, value):
        view = self.views[CHANGED]
        if self.framework.change:
            self.framework.change(self.tensors[CHANGED], value)
            return {"how": "by the GPU"}
        view.memory[:256] = bytes([value]) * 256
        self.file_flush()
        return {"how": "through the CPU's mapping"}

    def file_flush(self):
        import gpumem
        with gpumem.open(self.model, "r+") as buffer:
            buffer.flush()

    def see(self):
        """The first bytes of the tensor that the test changes, as this framework sees them now."""
        self.tensors[CHANGED] = self.framework.take(self.views[CHANGED])
        keep, address = self.framework.bytes_of(self.tensors[CHANGED])
        seen = ctypes.string_at(address, 257).hex()
        del keep
        return {"seen": seen}

    def end(self):
        self.tensors.clear()
        self.views.clear()
        self.file.close()
        import gc
        gc.collect()
        return {}


def child(framework, model, source):
    # Messages printed by frameworks must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sharer = None
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        try:
            sharer = sharer or Sharer(framework, model, source)
            answer = getattr(sharer, command)(*arguments)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        answers.write(json.dumps(answer) + "\n")


# --- process A

def write_source(path, size, jobs):
    """Makes a file of random bytes with a header whose end is aligned, as gpumem.align does; returns the header."""
    header, at = {"__metadata__": {"made by": "tests/gpu/python_share.py"}}, 0

    def add(name, code, item, shape):
        nonlocal at
        count = item
        for number in shape:
            count *= number
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [at, at + count]}
        at += count

    for number in range(LARGE):
        code, item = KINDS[number % len(KINDS)]
        add(f"large.{number}", code, item, [max(size // LARGE // 4096, 1), 4096 // item])
    add("scalar", "F64", 8, [])
    add("empty", "F32", 4, [0, 7])
    add("small", "BF16", 2, [3, 5])
    add("odd", "U8", 1, [5])
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 256)
    block = os.urandom(16 * MIB)
    with open(path, "wb", buffering=0) as file:
        file.truncate(8 + len(text) + at)
        file.write(len(text).to_bytes(8, "little") + text)
        start = 8 + len(text)

        def fill(offset):
            turn = offset // len(block) * 4099 % len(block)
            piece = (block[turn:] + block[:turn])[:at - offset]
            os.pwrite(file.fileno(), piece, start + offset)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(fill, range(0, at, len(block))))
    return header, start


class Child:
    """A process that shares the file, with commands and answers in lines."""

    def __init__(self, machine, python, framework, model, source, env):
        self.machine, self.framework = machine, framework
        log = machine.report.log_file
        log.flush()
        self.process = subprocess.Popen(
            [python, str(HERE / "python_share.py"), "--child", framework, str(model), str(source)],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0)
        self.rest = b""

    def tell(self, *words):
        self.process.stdin.write(json.dumps(words).encode() + b"\n")

    def answer(self, seconds=150):
        deadline = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return {"error": f"no answer within {seconds} s"}
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                return {"error": f"it ended with status {self.process.wait()}"}
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def ask(self, *words):
        self.tell(*words)
        return self.answer()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def cat_differs(path, source, stamps):
    """Compares `cat` of the file with the source, in which stamps (offset, bytes) replace bytes: the first offset of a
    piece that differs, or None."""
    process = subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE)
    offset = 0
    with open(source, "rb") as wanted:
        while True:
            piece = process.stdout.read(8 * MIB)
            expected = bytearray(wanted.read(8 * MIB))
            for at, text in stamps:
                if offset <= at < offset + len(expected):
                    expected[at - offset:at - offset + len(text)] = text
            if piece != expected:
                process.kill()
                process.wait()
                return offset
            if not piece:
                return None if process.wait() == 0 else offset
            offset += len(piece)


def library(machine):
    """The path of libgpumem.so.0 in the build or bundle."""
    return next(str(p) for p in (machine.build / "libgpumem.so.0", machine.build / "lib" / "libgpumem.so.0",
                                 Path("libgpumem.so.0")) if p.exists() or not p.is_absolute())


def start_children(machine, model, source):
    """The frameworks of this machine, initialised."""
    python = os.environ.get("GPUMEM_PYTHON") or sys.executable
    env = dict(machine.env, GPUMEM_LIBRARY=library(machine), XLA_PYTHON_CLIENT_PREALLOCATE="false",
               JAX_PLATFORMS="", TF_CPP_MIN_LOG_LEVEL="2", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    children = []
    for framework in FRAMEWORKS:
        if machine.standin and framework != "driver":
            continue
        if framework != "driver" and subprocess.run(
                [python, "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec({framework!r}) is None)"],
                env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
            machine.report.absent(f"{framework}: opens the file", f"{python} has no such module")
            continue
        children.append(Child(machine, python, framework, model, source, env))
    if len(children) == 1:  # a second process all the same
        children.append(Child(machine, python, "driver", model, source, env))
    for each in children:
        each.tell("ready")
    ready = []
    for letter, each in zip("BCDE", children):
        answer = each.answer()
        if "error" in answer:
            machine.report.absent(f"{each.framework}: opens the file", answer["error"])
            each.kill()
        else:
            each.label = f"{letter}, {each.framework} {answer['version']}"
            ready.append(each)
    return ready


def failed(machine, what, answer):
    """Whether a child failed; if so, adds a row to the report."""
    if "error" in answer:
        machine.report.check(what, False, answer["error"])
    return "error" in answer


def open_everywhere(machine, mount, children, size):
    report = machine.report
    time.sleep(1)
    before = machine.smi_memory(0, mount)["used"]
    for each in children:
        answer = each.ask("open")
        if failed(machine, f"{each.label}: opens the file", answer):
            continue
        figure = f"{answer['n']} tensors in {answer['seconds'] * 1000:.0f} ms"
        for field, text in (("as_bytes", "as uint8, having no such type"), ("refused", "refused"), ("copied", "copied")):
            figure += f"; {text}: {', '.join(answer[field])}" if answer[field] else ""
        if answer["why"]:
            report.note(f"{each.label}: " + "; ".join(answer["why"]))
        # A framework may refuse small tensors at odd offsets; then the note has the reason.
        wrong = answer["copied"] or [name for name in answer["refused"] if name.startswith("large")]
        report.check(f"{each.label}: every tensor is a view of the file, at its address", not wrong, figure)
    grown = machine.smi_memory(0, mount)["used"] - before
    report.check(f"{len(children)} processes have the file: used memory is one copy's", grown <= min(256 * MIB, size // 8),
                 f"grew by {grown / MIB:.0f} MiB for a file of {size / MIB:.0f} MiB")


def check_everywhere(machine, children):
    for each in children:
        each.tell("check")
    for each in children:
        start, answer = time.monotonic(), each.answer()
        if not failed(machine, f"{each.label}: reads every tensor", answer):
            machine.report.check(f"{each.label}: every tensor has the original's bytes", not answer["differing"],
                                 f"{answer['bytes'] / MIB:.0f} MiB in {time.monotonic() - start:.1f} s"
                                 + (f"; not {answer['differing'][:5]}" if answer["differing"] else ""))


def seen_by_all(machine, children, model, at, value, who):
    """Checks that all children and dd see 256 bytes of the value, and the old byte behind them."""
    with open(model, "rb", buffering=0) as file:
        there = os.pread(file.fileno(), 257, at)
    by_read = there[:256] == bytes([value]) * 256
    others = {each.label: each.ask("see") for each in children}
    blind = [label for label, answer in others.items() if answer.get("seen") != there.hex()]
    machine.report.check(f"what {who} changed: read(2) and every process see it", by_read and not blind,
                         "" if by_read and not blind else f"read: {by_read}; not seen by {blind}")


def change_everywhere(machine, children, model, source, at):
    for number, each in enumerate(children):
        answer = each.ask("change", number + 1)
        if not failed(machine, f"{each.label}: changes bytes", answer):
            seen_by_all(machine, children, model, at, number + 1, f"{each.label} ({answer['how']})")
    with open(model, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"\xaa" * 256, at)
    seen_by_all(machine, children, model, at, 0xaa, "process A, by write(2),")
    differs = cat_differs(model, source, [(at, b"\xaa" * 256)])
    machine.report.check("cat shows the original with the change, and nothing else", differs is None,
                         "" if differs is None else f"differs in the 8 MiB from {differs}")


def align_on_the_gpu(machine, mount, size):
    """A file with an unaligned header: an aligned copy is made beside the file."""
    os.environ.setdefault("GPUMEM_LIBRARY", library(machine))
    import gpumem
    path = machine.scratch / "unaligned.safetensors"
    header, start = write_source(path, size, machine.cpus)
    with open(path, "rb") as file:
        content = file.read()
    text = content[8:start].rstrip(b" ")
    text += b" " * (-(8 + len(text)) % 8 + 3)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[start:])
    shutil.copy(path, mount.gpu() / "unaligned")
    began = time.monotonic()
    report = gpumem.align(mount.gpu() / "unaligned", mount.gpu() / "aligned")
    seconds = time.monotonic() - began
    with open(mount.gpu() / "aligned", "rb") as file:
        same = file.read()[report.data_start:] == content[start:]
    large = sum(name.startswith("large") for name in report.aligned)
    machine.report.check("gpumem.align on the GPU: the same data, every large tensor at a multiple of 256",
                         same and large == LARGE and not report.misaligned,
                         f"{len(content) / MIB:.0f} MiB in {seconds * 1000:.0f} ms")
    for name in ("unaligned", "aligned"):
        (mount.gpu() / name).unlink()
    path.unlink()


def share(machine, mount, source, size, at):
    model = mount.gpu() / "model.safetensors"
    before = machine.smi_memory(0, mount)["used"]
    start = time.monotonic()
    machine.run(["cp", source, model])
    seconds = time.monotonic() - start
    slack = max(32 * MIB, size // 64)
    machine.settles(lambda: abs(machine.smi_memory(0, mount)["used"] - before - size) <= slack)
    grown = machine.smi_memory(0, mount)["used"] - before
    machine.report.check("process A stages the file with cp", abs(grown - size) <= slack,
                         f"{size / MIB:.0f} MiB in {seconds:.1f} s; used memory grew by {grown / MIB:.0f} MiB")
    children = start_children(machine, model, source)
    try:
        if len(children) < 2:
            machine.report.check("two processes that open the file", False, f"{len(children)} are ready")
        open_everywhere(machine, mount, children, size)
        check_everywhere(machine, children)
        change_everywhere(machine, children, model, source, at)
        leases = int(os.getxattr(model, "user.gpumem.leases"))
        machine.report.check("a lease for each process", leases == len(children), f"{leases} leases")
        for each in children[:1]:
            failed(machine, f"{each.label}: lets go", each.ask("end"))
            ended = machine.settles(lambda: int(os.getxattr(model, "user.gpumem.leases")) == len(children) - 1)
            machine.report.check(f"{each.label}: the lease ends with the last tensor, in a living process", ended)
    finally:
        for each in children:
            each.kill()
    ended = machine.settles(lambda: int(os.getxattr(model, "user.gpumem.leases")) == 0)
    machine.report.check("killed processes leave no lease", ended)
    model.unlink()
    back = machine.settles(lambda: abs(machine.smi_memory(0, mount)["used"] - before) <= 64 * MIB, 10)
    machine.report.check("used memory comes back after rm", back)


def point_python(machine, size=None):
    """As a point of tests/gpu/run."""
    if not PACKAGE:
        machine.report.absent("the Python module", "client/python is not here")
        return
    wanted = size or parse_size(os.environ.get("GPUMEM_PYTHON_SIZE") or "10G")
    source = machine.scratch / "model.safetensors"
    header, start = write_source(source, wanted, machine.cpus)
    at = start + header[CHANGED]["data_offsets"][0]
    try:
        with machine.mount() as mount:
            mount.warm()
            align_on_the_gpu(machine, mount, wanted // 32)
            share(machine, mount, source, source.stat().st_size, at)
    finally:
        source.unlink()


# --- alone

def parse_size(text):
    found = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if not found:
        raise SystemExit(f"python_share.py: {text!r} is not a size")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[found[2]]


def alone():
    from harness import NOT_SHOWN, SHOWN, Machine, Mount, Report
    root = HERE.parent.parent
    parser = argparse.ArgumentParser(description=__doc__.split(":")[1].strip())
    parser.add_argument("--build", type=Path, default=root if (root / "gpumemfs").exists() else root / "build")
    parser.add_argument("--backend", choices=("cuda", "standin"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "gpu-results"))
    args = parser.parse_args()
    args.build, args.size = args.build.resolve(), parse_size(os.environ.get("GPUMEM_PYTHON_SIZE") or "10G")
    shm = Path("/dev/shm")
    roomy = shm.is_dir() and shutil.disk_usage(shm).free > args.size * 5 // 4
    args.scratch = Path(tempfile.mkdtemp(prefix="gpumemfs-python.", dir=shm if roomy else None))
    args.scratch.chmod(0o755)
    report = Report(args.out.resolve())
    machine = Machine(args, report)
    machine.mount = lambda options="", env=None: Mount(machine, options, env)

    def clean():
        for mount in list(Mount.live):
            mount.kill()
        if f" {args.scratch}/" not in Path("/proc/self/mountinfo").read_text():
            shutil.rmtree(args.scratch, ignore_errors=True)
    atexit.register(clean)
    report.begin("A safetensors file in three frameworks")
    try:
        point_python(machine)
    except Exception as error:
        report.check("to its end", False, f"{type(error).__name__}: {error}")
        report.log(traceback.format_exc())
    finally:
        report.end()
    report.say(f"{report.count(SHOWN)} shown, {report.count(NOT_SHOWN)} not shown; {args.out}/results.md")
    return 1 if report.count(NOT_SHOWN) or not report.count(SHOWN) else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:5])
    else:
        sys.exit(alone())
