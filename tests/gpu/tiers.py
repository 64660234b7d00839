# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Files that leave a full GPU (docs/tiers.md): more files than the GPU has memory, moving them beside the link, reads of
files that are away, and what spill= costs while nothing leaves."""

import os
import random
import statistics
import subprocess
import time

from copying import link_rates
from examples import Examples
from harness import GIB, MIB, compare, median, rate
from pointers import timed
from wires import NULL, OURS, run_bench

SPILL_MOST = 64 * GIB
SPILL_USED = 0.9       # of the spill, by a model that takes turns
MOVE_SHARE = 0.85      # of pinned copies
MODEL_PART = 0.36      # of the GPU: 50 GiB of 139
MODEL_FILES = 8
TURNS_SHARE = 0.8      # of the time that both directions of the link take
READS, READ_US = 20000, 20
UNUSED_SHARE = 0.98    # of the rates without spill=
ROUNDS = 3
ENGINE_MIB = 1024
PARKED, PARK_MS = 24 * GIB, 10
CYCLES, CYCLE_OWN = 100, 256 * MIB
LEAVES_EVERY = 25      # cycles
PARK = r'''
import ctypes, os, sys, time, gpumem
from gpumem import _cuda
path, last = sys.argv[1], 1 << 20
file = os.open(path, os.O_RDWR | os.O_CREAT)
os.posix_fallocate(file, 0, int(sys.argv[2]))
os.pwrite(file, os.urandom(last), int(sys.argv[2]) - last)
os.close(file)
buffer = gpumem.open(path, "r+")
memory = buffer._file()
address, seen = memory.dlpack_address(), ctypes.create_string_buffer(last)

def took(name, call):
    start = time.perf_counter()
    call()
    print(name, (time.perf_counter() - start) * 1e3)

took("first", buffer.park)
buffer.unpark()
took("park", buffer.park)
took("stayed", buffer.unpark)
buffer.park()
while os.getxattr(path, "user.gpumem.leases") != b"0":
    time.sleep(0.001)
os.setxattr(path, "user.gpumem.resident", b"evicted")
took("left", buffer.unpark)
with _cuda.Primary(memory._own_device()):
    end = ctypes.c_uint64(address + buffer.size - last)
    _cuda._check(_cuda.driver().cuMemcpyDtoH_v2(seen, end, ctypes.c_size_t(last)), "cuMemcpyDtoH")
with open(path, "rb") as file:
    print("same", int(memory.dlpack_address() == address and os.pread(file.fileno(), last, buffer.size - last) == seen.raw))
'''

# Maps a file of so many bytes, has memory of its own, and waits at safe points for lines, which it answers.
CYCLE = r'''
import ctypes, os, select, sys, gpumem
from gpumem import _cuda
path, size, own_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path, "wb") as file:
    file.truncate(size)
os.posix_fallocate(os.open(path, os.O_RDWR), 0, size)
buffer = gpumem.open(path, "r+")
memory = buffer._file()
address, primary, driver = memory.dlpack_address(), _cuda.Primary(memory._own_device()), _cuda.driver()

def bytes_at(*places):
    with primary:
        for place in places:
            seen = ctypes.create_string_buffer(1)
            _cuda._check(driver.cuMemcpyDtoH_v2(seen, ctypes.c_uint64(place), ctypes.c_size_t(1)), "cuMemcpyDtoH")
            yield seen.raw[0]

def fill(value):
    with primary:
        for place, bytes in ((address, size), (own, own_size)):
            _cuda._check(driver.cuMemsetD8_v2(ctypes.c_uint64(place), value, ctypes.c_size_t(bytes)), "cuMemsetD8")
        _cuda.synchronize()

with primary:
    own = _cuda.allocate(own_size)
places = address, address + size // 2 + 1, address + size - 1, own, own + own_size - 1
value = 1
fill(value)
print("ready", flush=True)
while True:
    if not select.select([0], [], [], 0.005)[0]:
        gpumem.safe_point()
        continue
    if not sys.stdin.readline():
        break
    gpumem.safe_point()
    same = set(bytes_at(*places)) == {value} and memory.dlpack_address() == address
    value += 1
    fill(value)
    print(int(same), flush=True)
with primary:
    _cuda.free(own)
'''


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def spill_bytes(machine):
    """Leaves room for the source in memory, and for the rest of the system."""
    room = 256 * MIB if machine.standin else memory_bytes() - 4 * machine.size
    return min(SPILL_MOST, room) // machine.size * machine.size


def stamp_of(number):
    return b"file %06d" % number


def file_make(machine, source, path, number):
    machine.run([machine.build / "gpumem", "cp", "-q", source, path])
    with open(path, "r+b", buffering=0) as file:
        file.write(stamp_of(number))


def place(path, value):
    os.setxattr(path, "user.gpumem.resident", value)


def in_host(path):
    parts = os.getxattr(path, "user.gpumem.resident").decode().split()
    return sum(int(part.split(":")[1]) for part in parts if part.startswith("host:"))


def seconds_of(call):
    start = time.monotonic()
    call()
    return time.monotonic() - start


def more_than_fits(machine, mount, spill):
    """Files that fill the GPU and most of the spill, compared in another order than they were written."""
    source, size = machine.source(), machine.size
    total, room = mount.stats()["total_bytes"] - spill, os.statvfs(mount.gpu())
    count = int(room.f_bavail * room.f_frsize // size)
    files = [mount.gpu() / f"more{i}" for i in range(count)]
    seconds = seconds_of(lambda: [file_make(machine, source, path, i) for i, path in enumerate(files)])
    away = mount.stats()["places"]["host"]["file_bytes"]
    machine.report.check(f"{count * size // GIB} GiB of files on a GPU of {total // GIB} GiB: memory of some has left", away > 0,
                         f"{away // GIB} GiB away; written at {rate(count * size, seconds)}, files leaving meanwhile")
    order = list(range(count))
    random.Random(1).shuffle(order)
    wrong = []
    seconds = seconds_of(lambda: wrong.extend(
        i for i in order if compare(files[i], source, size, machine.cpus, ((0, stamp_of(i)),)) is not None))
    machine.report.check(f"{count} files of {size // MIB} MiB, compared in random order: all bytes right", not wrong,
                         f"wrong: {wrong}" if wrong else f"read at {rate(count * size, seconds)}")
    for path in files:
        path.unlink()


def moving(machine, mount, into, out):
    """One file there and back, beside pinned copies. The first time makes the system memory, later times find it."""
    source, size, path = machine.source(), machine.size, mount.gpu() / "moved"
    file_make(machine, source, path, 0)
    first = seconds_of(lambda: place(path, b"evicted"))
    seconds = {"fetch": [], "evict": []}
    for _ in range(ROUNDS):
        seconds["fetch"].append(seconds_of(lambda: place(path, b"gpu")))
        seconds["evict"].append(seconds_of(lambda: place(path, b"evicted")))
    machine.report.check("moved: the same bytes", compare(path, source, size, machine.cpus, ((0, stamp_of(0)),)) is None)
    for what, link in (("fetch", into), ("evict", out)):
        best = median(seconds[what])
        timed(machine, f"{what} {size // MIB} MiB: at least {MOVE_SHARE} of pinned copies", size / best >= MOVE_SHARE * link,
              f"{rate(size, best)}; pinned copies {rate(link, 1)}; ratio {size / best / link:.2f}"
              + (f"; the first time, which makes the memory, {rate(size, first)}" if what == "evict" else ""))
    return path


def reading_away(machine, path):
    fd = os.open(path, os.O_RDONLY)
    numbers, times = random.Random(2), []
    for _ in range(READS if not machine.standin else 200):
        offset = numbers.randrange(machine.size // 4096) * 4096
        start = time.perf_counter_ns()
        os.pread(fd, 4096, offset)
        times.append(time.perf_counter_ns() - start)
    os.close(fd)
    times.sort()
    p50, p90 = times[len(times) // 2] / 1e3, times[len(times) * 9 // 10] / 1e3
    timed(machine, f"4 KiB read at random of a file that is away, p50: at most {READ_US} us", p50 <= READ_US,
          f"{p50:.1f} us, p90 {p90:.1f}, from Python")


def taking_turns(machine, mount, into, out, spill):
    """Two models that do not fit together."""
    source, size = machine.source(), machine.size
    total = mount.stats()["total_bytes"] - spill
    count = max(1, int(min(MODEL_PART * total, SPILL_USED * spill) // size))
    models = [[mount.gpu() / f"model{m}-{i}" for i in range(count)] for m in range(2)]
    for m, model in enumerate(models):
        for i, path in enumerate(model):
            file_make(machine, source, path, m * count + i)
        if m == 0:
            for path in model:
                place(path, b"evicted")
    times = []
    for turn in range(2 * ROUNDS):
        there, back = models[1 - turn % 2], models[turn % 2]
        # File by file: the spill has no room for both.
        times.append(seconds_of(lambda: [(place(leaves, b"evicted"), place(returns, b"gpu"))
                                         for leaves, returns in zip(there, back)]))
    moved, best = count * size, median(times)
    allowed = moved / out + moved / into
    timed(machine, f"two models of {moved // GIB} GiB taking turns: at least {TURNS_SHARE} of what the link allows both ways",
          allowed / best >= TURNS_SHARE, f"{best:.2f} s; pinned copies of both {allowed:.2f} s; ratio {allowed / best:.2f}")
    wrong = [path.name for m, model in enumerate(models) for i, path in enumerate(model)
             if compare(path, source, size, machine.cpus, ((0, stamp_of(m * count + i)),)) is not None]
    machine.report.check("both models after their turns: the same bytes", not wrong, " ".join(wrong))
    for path in models[0] + models[1]:
        path.unlink()


def sleeping(machine, mount):
    """An engine of torch whose model and pool leave the GPU, and whose graph is replayed after."""
    examples = Examples(machine)
    if not examples.here or not examples.torch:
        machine.report.absent("an engine with a CUDA graph sleeps and wakes", "the examples, or torch with a GPU, are not here")
        return
    model = mount.gpu() / "engine.safetensors"
    examples.run("make_model.py", model, ENGINE_MIB)
    machine.run([machine.build / "gpumem", "align", model])
    said = examples.run("sleep_wake.py", model, check=False).splitlines()[-1:]
    machine.report.check("an engine of torch sleeps, its model leaves, it wakes: the CUDA graph replayed gives the same",
                         bool(said) and said[0].endswith("the graph replayed: the result is the same"), "".join(said))
    model.unlink()


def parking(machine, mount):
    """The time to park a mapped file and to unpark it, where its bytes stayed and where they left; without torch."""
    examples, path = Examples(machine), mount.gpu() / "parked"
    if not examples.here:
        machine.report.absent("a mapped file is parked", "the Python module or the library is not here")
        return
    size, found = 64 * MIB if machine.standin else PARKED, {}
    for line in machine.run([examples.python, "-c", PARK, path, str(size)], env=examples.env).stdout.splitlines():
        name, value = line.split()
        found[name] = float(value)
    name, both = f"{size // MIB} MiB parked and unparked", found["park"] + found["stayed"]
    machine.report.check(f"{name}: the same addresses, the same bytes", found["same"] == 1)
    timed(machine, f"{name}, the file stays on the GPU: at most {PARK_MS} ms", both <= PARK_MS,
          f"parked in {found['park']:.1f} ms, the first time in {found['first']:.1f} ms; unparked in {found['stayed']:.1f} ms; where it had "
          f"left in {found['left']:.1f} ms ({rate(size, found['left'] / 1e3)})")
    path.unlink()


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Cycles:
    """Checkpoints of a process that answers lines, and what was seen."""

    def __init__(self, machine, mount, child, path):
        self.machine, self.mount, self.child, self.path = machine, mount, child, path
        self.away, self.back, self.same, self.grown, self.left = [], [], [], [], []

    def run(self, leaves):
        command, pid = [self.machine.build / "gpumem", "checkpoint"], self.child.pid
        used, resident = self.machine.smi_memory(0, self.mount)["used"], resident_bytes(pid)
        self.away.append(seconds_of(lambda: self.machine.run([*command, pid])))
        self.grown.append(resident_bytes(pid) - resident)
        if leaves:
            place(self.path, b"evicted")
            self.left.append(used - self.machine.smi_memory(0, self.mount)["used"])
        self.back.append(seconds_of(lambda: self.machine.run([*command, "--restore", pid])))
        self.child.stdin.write("check\n")
        self.child.stdin.flush()
        self.same.append(self.child.stdout.readline() == "1\n")


def checkpointing(machine, mount):
    """A process with a large file and memory of its own: checkpointed, its file evicted now and then, restored, and again."""
    examples, path = Examples(machine), mount.gpu() / "cycled"
    size, own = (64 * MIB, 16 * MIB) if machine.standin else (PARKED, CYCLE_OWN)
    number = 5 if machine.standin else CYCLES
    if not examples.here:
        machine.report.absent("a process is checkpointed and restored", "the Python module or the library is not here")
        return
    child = subprocess.Popen([examples.python, "-c", CYCLE, path, str(size), str(own)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=machine.report.log_file, text=True,
                             env=dict(examples.env, GPUMEM_STANDIN_CHECKPOINTS="1"))
    cycles = Cycles(machine, mount, child, path)
    try:
        if child.stdout.readline() == "ready\n":
            for i in range(number):
                cycles.run(i % LEAVES_EVERY == 0)
        child.stdin.close()
        child.wait(30)
    finally:
        child.kill()
        child.wait()
    sizes = f"a file of {size // MIB} MiB mapped and {own // MIB} MiB of its own"
    machine.report.check(f"a process with {sizes}, checkpointed and restored {number} times: the same bytes and addresses",
                         cycles.same == [True] * number and child.returncode == 0,
                         f"{sum(cycles.same)} of {number}; checkpointed in {median(cycles.away):.2f} s, restored in "
                         f"{median(cycles.back):.2f} s" if cycles.same else "the process did not start")
    if cycles.same and not machine.standin:  # the stand-in's memory of other processes is not counted here
        machine.report.check("a checkpointed process has no copy of its file", max(cycles.grown) < size // 2,
                             f"its memory grew by {median(cycles.grown) // MIB} MiB, at most {max(cycles.grown) // MIB} MiB")
        machine.report.check("meanwhile neither is on the GPU", min(cycles.left) >= size + own,
                             f"{min(cycles.left) // MIB} MiB less in use")
    path.unlink()


def point_tiers(machine):
    spill = spill_bytes(machine)
    into, out = link_rates(machine)
    with machine.mount(f"gpus=0,spill=host:{spill}") as mount:
        mount.warm(0)
        path = moving(machine, mount, into, out)
        reading_away(machine, path)
        path.unlink()
        taking_turns(machine, mount, into, out, spill)
        sleeping(machine, mount)
        parking(machine, mount)
        checkpointing(machine, mount)
        more_than_fits(machine, mount, spill)
        machine.report.note("spill: " + mount.params()["spill"])


def ratio_of(plain, on, case):
    """How fast with spill= beside without: each run beside a FUSE daemon without a GPU in the same run, because the machine
    itself is slower in one run than in another. Of rates, or of times turned over."""
    name, label, _ = case
    found = [sum(run.median(*case) / run.median(name, label, NULL[0]) for run in runs) for runs in (on, plain)]
    return found[1] / found[0] if "p50" in plain[0].by_place[case] else found[0] / found[1]


def point_unused(machine):
    """The same cases without and with the option, in turn. Between two runs of one build single cases differ by more than
    the bar, so the bar is for the mean of all cases; the lowest are named."""
    arguments = ["--only", "read,write,random"] + (["--backend", "standin", "--quick"] if machine.standin
                                                   else ["--budget", "25", "--reps", "3"])
    option = ["--mount-options", f"spill=host:{spill_bytes(machine)}"]
    runs = {"": [], "on": []}
    for i, on in enumerate(("", "on", "on", "")):
        runs[on].append(run_bench(machine, f"spill-{on or 'off'}-{i}", arguments + (option if on else [])))
    ratios = {case: ratio_of(runs[""], runs["on"], case) for case in sorted(runs[""][0].by_place)
              if case[2] == OURS and runs[""][0].has(*case[:2], NULL[0])}
    mean = statistics.geometric_mean(ratios.values())
    timed(machine, f"{len(ratios)} cases with spill=, nothing away: at least {UNUSED_SHARE} of the rates without", mean >= UNUSED_SHARE,
          f"ratio {mean:.3f}, the geometric mean; single cases {min(ratios.values()):.2f} to {max(ratios.values()):.2f}")
    for case in sorted(ratios, key=ratios.get)[:5]:
        spreads = " and ".join(f"{runs[on][0].spread(*case):.0%}" for on in ("", "on"))
        machine.report.note(f"with spill=, nothing away: {case[0]} {case[1]}: {ratios[case]:.2f} of the rate without; spread {spreads}")
