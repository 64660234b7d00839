# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Points 4 and 5: copies on and between GPUs, and a GPU that is filled to the last chunk."""

import errno
import os
import time

from harness import GIB, MIB, Failure, compare, copy_range, rate
from staging import stage

MOVE_RATE, COPY_RATE = 300e9, 1e12 # the least on the reference machine, in bytes per second
MOVE_RATIO = 0.85 # of a raw copy between GPUs, each with access to the other's memory
COPY_RATIO, COPY_BYTES = 0.85, 4 * GIB # of a raw copy inside a GPU
ROUNDS = 5
PAUSE = 0.1 # between renames: a rename frees the old memory after its answer
SMALL_FILES = 64


def raw_seconds(machine, a, b, size=None):
    return float(machine.run([machine.build / "gpu" / "raw", "copy", a, b, size or machine.size]).stdout)


def timed(machine, what, seconds, raw, wanted):
    """A row with a rate, its ratio to the raw copy's, and the threshold on a real GPU."""
    figure = f"{rate(machine.size, seconds)}, {raw / seconds:.2f} of a raw copy ({rate(machine.size, raw)})"
    if machine.standin:
        machine.report.check(what, True, figure + "; no rate is asked of the stand-in")
    else:
        machine.report.check(f"{what}: at least {rate(wanted, 1)}", machine.size / seconds >= wanted, figure)


def median(times):
    return sorted(times)[len(times) // 2]


def renames(here, there, pause):
    """Seconds of each rename, by direction."""
    times = {0: [], 1: []}
    for index in range(2 * ROUNDS):
        source, target = (here, there) if index % 2 == 0 else (there, here)
        time.sleep(pause)
        start = time.monotonic()
        os.rename(source, target)
        times[index % 2].append(time.monotonic() - start)
    return times


def move(machine, mount):
    here, there = mount.gpu(0) / "moved", mount.gpu(1) / "moved"
    times = renames(here, there, PAUSE)
    busy = renames(here, there, 0)
    raw = [raw_seconds(machine, 0, 1), raw_seconds(machine, 1, 0)]
    for way, text in enumerate(("gpu0/ to gpu1/", "gpu1/ to gpu0/")):
        timed(machine, f"rename from {text}, median of {ROUNDS}", median(times[way]), raw[way], MOVE_RATE)
        if not machine.standin:
            ratio = raw[way] / median(times[way])
            machine.report.check(f"rename from {text}: at least {MOVE_RATIO} of a raw copy", ratio >= MOVE_RATIO, f"{ratio:.2f}")
    machine.report.note("one after the other, without a pause: " + ", ".join(
        rate(machine.size, median(busy[way])) for way in (0, 1)))
    start = time.monotonic()
    machine.run(["mv", here, there])
    seconds = time.monotonic() - start
    differs = compare(there, machine.source(), machine.size, machine.cpus)
    device = os.getxattr(there, "user.gpumem.device").decode()
    machine.report.check("mv moves the bytes", differs is None and not here.exists(),
                         f"{rate(machine.size, seconds)} with the tool's start; now on {device}")
    machine.run(["mv", there, here])


def copy_inside(machine, mount):
    gpu, size = mount.gpu(), machine.size
    raw = raw_seconds(machine, 0, 0)
    with open(gpu / "moved", "rb", buffering=0) as source:
        def fresh(index):
            with open(gpu / f"copy{index}", "wb", buffering=0) as target:
                return copy_range(source.fileno(), target.fileno(), size)

        def existing():
            with open(gpu / "copy0", "r+b", buffering=0) as target:
                return copy_range(source.fileno(), target.fileno(), size)

        times = []
        for index in range(ROUNDS):
            times.append(fresh(index))
            if index:
                (gpu / f"copy{index}").unlink()
        timed(machine, "copy_file_range inside gpu0, a new file", median(times), raw, COPY_RATE)
        timed(machine, "copy_file_range inside gpu0, over a file", median([existing() for _ in range(ROUNDS)]), raw, COPY_RATE)
    machine.check_same("the copy is the same bytes", gpu / "copy0", machine.source(), size)
    start = time.monotonic()
    machine.run(["cp", gpu / "moved", gpu / "by-cp"])
    machine.report.note(f"cp inside gpu0, with the tool's start: {rate(size, time.monotonic() - start)}")


def copy_ratios(machine, mount):
    """Beside the raw copy, from files in few and in many pieces."""
    size = min(COPY_BYTES, machine.size)
    for way in ("dd", "16 writers"):
        stage(machine, mount, way)
        path = mount.gpu() / way
        with open(path, "rb", buffering=0) as source, open(mount.gpu() / "copied", "wb", buffering=0) as target:
            times = [copy_range(source.fileno(), target.fileno(), size) for _ in range(ROUNDS + 1)][1:]
            raw = raw_seconds(machine, 0, 0, size)
            ratio = raw / median(times)
            what = f"copy_file_range inside gpu0, 4 GiB of a file written by {way}: at least {COPY_RATIO} of a raw copy"
            pieces = os.getxattr(path, "user.gpumem.extents").count(b"\n")
            figure = f"{ratio:.2f}: {rate(size, median(times))}, raw {rate(size, raw)}; the file is in {pieces} pieces"
            machine.report.check(what, machine.standin or ratio >= COPY_RATIO, figure)
        machine.check_same(f"the copy of what {way} wrote is the same bytes", mount.gpu() / "copied", machine.source(), size)
        for name in (path, mount.gpu() / "copied"):
            name.unlink()


def point_speed(machine):
    report = machine.report
    with machine.mount("gpus=0" if machine.gpus < 2 else "gpus=0:1") as mount:
        mount.warm(*range(min(machine.gpus, 2)))
        machine.run(["dd", f"if={machine.source()}", f"of={mount.gpu() / 'moved'}", "bs=1M", "status=none"])
        if machine.gpus < 2:
            report.absent("mv between gpu0/ and gpu1/", "it has one GPU")
        else:
            move(machine, mount)
        copy_inside(machine, mount)
        for name in ("moved", "copy0", "by-cp"):
            (mount.gpu() / name).unlink()
        copy_ratios(machine, mount)


def small_content(index):
    return b"".join(b"small file %d, line %d\n" % (index, line) for line in range(index * index * 3 + 1))


def stamps_of(number, size):
    """Makes a large file different from the others: writes its number to 32 places."""
    return [((size // 32) * n + number, b"file %d stamp %d" % (number, n)) for n in range(32)] if number else []


def fill_large(machine, gpu):
    """Copies the first file until there is no room: the numbers of the copies and the length of the last copy,
    which is incomplete."""
    machine.run(["dd", f"if={machine.source()}", f"of={gpu / 'large0'}", "bs=1M", "status=none"])
    with open(gpu / "large0", "rb", buffering=0) as source:
        for number in range(1, 10000):
            with open(gpu / f"large{number}", "wb", buffering=0) as target:
                try:
                    copy_range(source.fileno(), target.fileno(), machine.size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return number, os.fstat(target.fileno()).st_size
                for at, text in stamps_of(number, machine.size):
                    os.pwrite(target.fileno(), text, at)
    raise Failure("the GPU is never full")


def fill_rest(machine, gpu):
    """Fills the room that is left, with smaller and smaller writes: the bytes that each wrote."""
    dd = machine.run(["dd", f"if={machine.source()}", f"of={gpu / 'rest'}", "bs=1M"], check=False)
    machine.report.check("dd into the rest: ENOSPC and a bad exit status",
                         dd.returncode == 1 and "No space left on device" in dd.stderr,
                         f"status {dd.returncode}, {(gpu / 'rest').stat().st_size // MIB} MiB written before")
    filled = {"rest": (gpu / "rest").stat().st_size}
    with open(machine.source(), "rb", buffering=0) as source:
        for length in (MIB, 64 << 10, 4 << 10):
            for count in range(2000):
                name = f"piece-{length}-{count}"
                try:
                    (gpu / name).write_bytes(os.pread(source.fileno(), length, 0))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break
                filled[name] = length
    return filled


def large_wrong(machine, gpu, numbers, size):
    found = {n: compare(gpu / f"large{n}", machine.source(), size, machine.cpus, stamps_of(n, size)) for n in numbers}
    return {n: at for n, at in found.items() if at is not None}


def small_wrong(gpu):
    return [i for i in range(SMALL_FILES) if (gpu / f"small{i}").read_bytes() != small_content(i)]


def check_all(machine, gpu, numbers, filled, when):
    start = time.monotonic()
    wrong = large_wrong(machine, gpu, numbers, machine.size)
    ends = [name for name, size in filled.items()
            if compare(gpu / name, machine.source(), size, machine.cpus) is not None]
    small = small_wrong(gpu)
    machine.report.check(f"{when}: nothing is corrupted", not (wrong or ends or small),
                         f"large files {', '.join(map(str, numbers))}; {len(filled)} cut short or filling; "
                         f"{SMALL_FILES} small: all compared in {time.monotonic() - start:.1f} s"
                         if not (wrong or ends or small) else f"large {wrong}, ends {ends[:5]}, small {small[:5]}")


def point_full(machine):
    report = machine.report
    with machine.mount("gpus=0") as mount:
        gpu = mount.gpu()
        for index in range(SMALL_FILES):
            (gpu / f"small{index}").write_bytes(small_content(index))
        number, cut = fill_large(machine, gpu)
        report.check("copy_file_range into a full GPU: ENOSPC", True,
                     f"{number} files of {machine.size // MIB} MiB and {cut // MIB} MiB of one more")
        filled = {f"large{number}": cut, **fill_rest(machine, gpu)}
        memory = machine.smi_memory(0, mount)
        report.check("the GPU is full to the last chunk", memory["free"] < max(64 * MIB, memory["total"] // 100),
                     f"{memory['free'] // MIB} MiB free by the driver, "
                     f"{mount.stats()['available_bytes'] // 1024} KiB for files")
        numbers = sorted({0, *range(max(0, number - 3), number)})
        check_all(machine, gpu, numbers, filled, "full")
        report.check("large0: cat | sha256sum equals the source's",
                     len(set(machine.sums(machine.source(), gpu / "large0"))) == 1)
        gone = 1 if number > 1 else 0
        (gpu / f"large{gone}").unlink()
        machine.run(["dd", f"if={machine.source()}", f"of={gpu / 'again'}", "bs=1M", "status=none"])
        report.check("after one rm a file of that size fits again",
                     compare(gpu / "again", machine.source(), machine.size, machine.cpus) is None)
        check_all(machine, gpu, [n for n in numbers if n != gone][-2:], filled, "after that")
