# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""backend=vulkan beside backend=cuda: two mounts of one GPU do the same work in turns. Both copy with the BAR and by DMA
as they find best."""

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

from costs import ratios
from harness import GIB, MIB, Failure, copy_range, median, rate
from pointers import Absent, allocated, chunks_text, guarded, helper, size_text, store, timed

BACKENDS = ("cuda", "vulkan")
ROUNDS, COPY_ROUNDS, OPEN_ROUNDS = 5, 7, 51
STREAM_SHARE = 0.8  # of the rate of backend=cuda, by 16 threads with 1 MiB
COPY_BYTES, COPY_RATE = 4 * GIB, 1.5e12  # inside an H200
COPY_SHARE = 0.95  # of backend=cuda, inside another GPU
STORE_RATIO, OPEN_RATIO = 1.1, 2  # of the time of backend=cuda
IDLE_MEMORY = 32 * MIB
IDLE_MS = 2000
STREAMS = {("write_1M", 16), ("read_1M", 16)}


class Table:
    """Figures of both mounts, by what was measured."""

    def __init__(self):
        self.lines = []

    def add(self, what, figures):
        self.lines.append((what, *figures))

    def text(self):
        wide = max(len(line[0]) for line in self.lines)
        head = f"{'':{wide}}  {BACKENDS[0]:>14}  {BACKENDS[1]:>14}"
        return "\n".join([head] + [f"{what:{wide}}  {one:>14}  {other:>14}" for what, one, other in self.lines])


@contextlib.contextmanager
def stand_ins(machine):
    """On the stand-in driver the GPU of Vulkan is lavapipe with the UUID of the stand-in's GPU 0, under the real loader."""
    if not machine.standin:
        yield
        return
    driver = machine.build / "driver"
    icd, libraries, before = driver / "discrete.json", machine.scratch / "libraries", dict(machine.env)
    if not icd.exists():
        raise Failure(f"no {icd} (make driver)")
    libraries.mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (libraries / name).symlink_to(driver / name)
    machine.env.update(LD_LIBRARY_PATH=str(libraries), VK_DRIVER_FILES=str(icd), VK_ICD_FILENAMES=str(icd))
    try:
        yield
    finally:
        machine.env = before
        shutil.rmtree(libraries)


def work_text(work, operations):
    return f"{operations * MIB / 1e9:.1f} GB/s" if work.endswith("_1M") else f"{operations / 1000:.1f} k/s"


def streams(machine, mounts, table):
    said = machine.run([machine.build / "gpu" / "costs", 2 if machine.standin else ROUNDS,
                        *(mount.gpu() for mount in mounts)]).stdout
    found = {}
    for line in said.splitlines():
        work, threads, folder, *rates = line.split()
        found.setdefault((work, int(threads)), {})[int(folder)] = list(map(float, rates))
    for (work, threads), rates in found.items():
        if not work.endswith(("_1M", "_4K")):
            continue
        table.add(f"{work.replace('_', ' ')}, {threads} threads", [work_text(work, median(rates[i])) for i in (0, 1)])
        if (work, threads) in STREAMS:
            share = median(ratios(rates[0], rates[1]))
            timed(machine, f"{work.replace('_1M', '')} 1 MiB by {threads} threads: at least {STREAM_SHARE} of backend=cuda",
                  share >= STREAM_SHARE, f"{share:.2f}, median of {len(rates[0])} rounds; "
                  f"{work_text(work, median(rates[1]))}, cuda {work_text(work, median(rates[0]))}")


def copies(machine, mount, size):
    """The median rates of copies into new files and over a file."""
    gpu = mount.gpu()
    machine.run(["dd", f"if={machine.source()}", f"of={gpu / 'from'}", "bs=1M", f"count={size // MIB}", "status=none"])
    fresh, over = [], []
    with open(gpu / "from", "rb", buffering=0) as source:
        for _ in range(COPY_ROUNDS):
            with open(gpu / "new", "wb", buffering=0) as target:
                fresh.append(copy_range(source.fileno(), target.fileno(), size))
            with open(gpu / "new", "r+b", buffering=0) as target:
                over.append(copy_range(source.fileno(), target.fileno(), size))
            if len(over) < COPY_ROUNDS:
                (gpu / "new").unlink()
    machine.check_same(f"{mount.params()['backend']}: the copy inside the GPU is the same bytes", gpu / "new",
                       machine.source(), size)
    (gpu / "new").unlink()
    return size / median(fresh), size / median(over)


def copies_inside(machine, mounts, table):
    size = min(COPY_BYTES, machine.size)
    found = [copies(machine, mount, size) for mount in mounts]
    for way, what in enumerate(("a new file", "over a file")):
        table.add(f"copy_file_range of {size_text(size)}, {what}", [rate(each[way], 1) for each in found])
    name = mounts[1].params()["gpu0.name"]
    least = COPY_RATE if "H200" in name else COPY_SHARE * found[0][1]
    what = rate(COPY_RATE, 1) if "H200" in name else f"{COPY_SHARE} of backend=cuda"
    timed(machine, f"copy_file_range inside gpu0 over a file: at least {what}", found[1][1] >= least,
          f"{rate(found[1][1], 1)}; cuda {rate(found[0][1], 1)}; {size_text(size)}, medians of {COPY_ROUNDS}")


def killed(machine, mount):
    """The file that was copied is there, with its bytes, after the daemon was killed."""
    start = time.monotonic()
    os.kill(mount.daemon(), signal.SIGKILL)
    size = (mount.gpu() / "from").stat().st_size
    seconds = time.monotonic() - start
    machine.check_same(f"a daemon that is killed is replaced after {seconds:.2f} s with the bytes of its files",
                       mount.gpu() / "from", machine.source(), size)


def pointer(machine, mounts, table):
    size = 16 * MIB if machine.standin else GIB
    found = []
    for mount in mounts:
        with allocated(mount.gpu() / "pointer", size):
            found.append(helper(machine, "pointers", "open", mount.gpu() / "pointer", OPEN_ROUNDS, "alone"))
    table.add(f"open to device pointer, {size_text(size)}", [f"{each['open_us']:.0f} us" for each in found])
    ratio = found[1]["open_us"] / found[0]["open_us"]
    timed(machine, f"{size_text(size)}: open to device pointer, at most {OPEN_RATIO} times backend=cuda", ratio <= OPEN_RATIO,
          f"{ratio:.2f}: {found[1]['open_us']:.0f} us, cuda {found[0]['open_us']:.0f}; {chunks_text(found[1])}")


def stores(machine, mounts, table):
    if machine.standin:
        raise Absent("its Vulkan cannot map memory of its CUDA")
    found = []
    for mount in mounts:
        machine.report.say(f"   stores into a file of backend={mount.params()['backend']}")
        with allocated(mount.gpu() / "stored", 64 * MIB):
            found.append(store(machine, mount.gpu() / "stored"))
    table.add("64 B store through the CPU pointer", [f"{each['store_ns']:.0f} ns" for each in found])
    ratio = found[1]["store_ns"] / found[0]["store_ns"]
    timed(machine, f"64 B store through the CPU pointer: at most {STORE_RATIO} times backend=cuda", ratio <= STORE_RATIO,
          f"{ratio:.2f}: {found[1]['store_ns']:.0f} ns, cuda {found[0]['store_ns']:.0f}")


def idle(machine, table):
    held = []
    for backend in BACKENDS:
        before = machine.smi_memory(0, None)["used"] if machine.smi else 0
        with machine.mount("gpus=0", {"GPUMEMFS_IDLE_MS": str(IDLE_MS)}, backend) as mount:
            (mount.gpu() / "gone").write_bytes(bytes(8 * MIB))
            (mount.gpu() / "gone").read_bytes()
            (mount.gpu() / "gone").unlink()
            time.sleep(2 * IDLE_MS / 1000)
            held.append(machine.smi_memory(0, mount)["used"] - before if machine.smi else 0)
    table.add("idle mount, GPU memory", [f"{each / MIB:.0f} MiB" for each in held])
    timed(machine, f"a mount that is idle holds at most {IDLE_MEMORY // MIB} MiB of the GPU", held[1] <= IDLE_MEMORY,
          f"{held[1] / MIB:.0f} MiB by nvidia-smi, cuda {held[0] / MIB:.0f}")


def lines(machine, table):
    folders = [Path(__file__).resolve().parent.parent.parent / "backend" / backend for backend in BACKENDS]
    if not all(folder.is_dir() for folder in folders):
        machine.report.absent("lines of both backends", "the sources are not in the bundle")
        return
    counts = [sum(len(path.read_text().splitlines()) for path in folder.glob("*.[ch]")) for folder in folders]
    table.add("lines", [str(count) for count in counts])
    machine.report.check("backend/vulkan has at most as many lines as backend/cuda", counts[1] <= counts[0],
                         f"{counts[1]}, {counts[0]}")


def chosen(machine):
    """What backend=auto takes when CUDA has no GPU."""
    hidden = {"CUDA_VISIBLE_DEVICES": "", "GPUMEM_STANDIN_GPUS": "0"}
    with machine.mount("", hidden, "auto") as mount:
        params = mount.params()
        machine.report.check("backend=auto without a GPU of CUDA takes Vulkan", params["backend"] == "vulkan",
                             f"{params['backend']}, {params['gpu0.name']}")


def point_vulkan(machine):
    table = Table()
    with stand_ins(machine):
        machine.source()
        with machine.mount("gpus=0") as cuda, machine.mount("gpus=0", None, "vulkan") as vulkan:
            mounts = cuda, vulkan
            for mount in mounts:
                mount.warm()
            machine.report.check("the second mount is of backend=vulkan, and maps GPU memory",
                                 vulkan.params()["backend"] == "vulkan" and vulkan.params()["gpu0.bar"] == "vulkan",
                                 f"{vulkan.params()['gpu0.name']}, BAR {vulkan.params()['gpu0.bar']}")
            guarded(machine, "work in turns", lambda: streams(machine, mounts, table))
            guarded(machine, "copies inside the GPU", lambda: copies_inside(machine, mounts, table))
            guarded(machine, "a device pointer", lambda: pointer(machine, mounts, table))
            guarded(machine, "stores by the CPU", lambda: stores(machine, mounts, table))
            guarded(machine, "a killed daemon", lambda: killed(machine, vulkan))
        guarded(machine, "backend=auto", lambda: chosen(machine))
        guarded(machine, "an idle mount", lambda: idle(machine, table))
    lines(machine, table)
    machine.report.note(table.text())
