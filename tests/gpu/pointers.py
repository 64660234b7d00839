# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Point 8: the time of libgpumem from path to pointer, beside the driver's own time; no leaks after kill -9 and after
many cycles; and the mount tests of the library's mappings."""

import contextlib
import os
import select
import subprocess
import time
import traceback

from harness import GIB, MIB, Failure
from preload import preload
from suites import mount_run

OPEN_ROUNDS, LARGE_ROUNDS, BATCHES = 51, 11, 101
OPEN_RATIO, STORE_RATIO = 1.5, 1.3
LARGE, LARGE_MICROSECONDS = 100 * GIB, 1000
SHARERS, WITH_CONTEXT, CYCLES = 100, 8, 10000
ABSENT_STATUS = 77
PRELOAD_SECONDS = 60  # dd, the slowest part, fits itself in
SEED = 12345


class Absent(Exception):
    """What this machine lacks for the point, in one line."""


def answers(text):
    """The lines "name value" of a helper."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = value
    return found


def ended(words, status, said):
    reason = (said.strip().splitlines() or ["it said nothing"])[-1]
    if status == ABSENT_STATUS:
        return Absent(reason)
    return Failure(f"{words[0]} {words[1]}: status {status}: {reason}")


def helper(machine, *words, timeout=30):
    result = machine.run([machine.build / "gpu" / words[0], *words[1:]], check=False, timeout=timeout)
    if result.returncode:
        raise ended(words, result.returncode, result.stderr)
    return answers(result.stdout)


class Background:
    """A helper that waits until the test ends it, after its last line of output."""

    def __init__(self, machine, last, *words):
        self.words, self.last = words, last
        machine.report.log("+ (in the background) " + " ".join(map(str, words)))
        self.process = subprocess.Popen([machine.build / "gpu" / words[0], *map(str, words[1:])], env=machine.env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_ready(self, seconds=30):
        """The helper's answer."""
        deadline, said = time.monotonic() + seconds, b""
        while not any(line.split()[:1] == [self.last.encode()] for line in said.split(b"\n")[:-1]):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Failure(f"{self.words[0]} {self.words[1]} says nothing for {seconds} s")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise ended(self.words, self.process.wait(), self.process.stderr.read().decode(errors="replace"))
            said += more
        return answers(said.decode())

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def end(self):
        """Ends the helper by closing its input: the helper closes its file and exits."""
        try:
            _, said = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"{self.words[0]} {self.words[1]} does not end") from None
        if self.process.returncode:
            raise ended(self.words, self.process.returncode, said.decode(errors="replace"))


def guarded(machine, what, steps):
    """Runs the steps. A failure is a row in the report, and the next steps follow."""
    try:
        steps()
    except Absent as absent:
        machine.report.absent(what, str(absent))
    except Failure as failure:
        machine.report.check(what, False, str(failure))
    except Exception as error:  # a bug here or a broken mount: the other steps still count
        machine.report.check(what, False, f"{type(error).__name__}: {error}")
        machine.report.log(traceback.format_exc())


def timed(machine, what, ok, figure):
    if machine.standin:
        machine.report.absent(what, figure + "; no time is asked of the stand-in")
    else:
        machine.report.check(what, ok, figure)


def size_text(size):
    return f"{size // GIB} GiB" if size % GIB == 0 else f"{size // MIB} MiB"


def chunks_text(found):
    return f"{found['chunks']:.0f} chunk{'s' if found['chunks'] > 1 else ''}"


def room(machine, mount, wanted):
    """This number of bytes, or three quarters of the free memory, rounded down to GiB if that is not 0."""
    there = machine.smi_memory(0, mount)["free"] * 3 // 4
    unit = GIB if there >= 2 * GIB else 2 * MIB
    return min(wanted, there // unit * unit)


@contextlib.contextmanager
def allocated(path, size):
    """A file with memory, with content only at both ends; removed afterwards."""
    try:
        with open(path, "w+b", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            for end in (0, size - 64):
                os.pwrite(file.fileno(), os.urandom(64), end)
        yield
    finally:
        path.unlink(missing_ok=True)


# --- path to pointer

def open_beside_bare(machine, mount):
    path, size = mount.gpu() / "one", room(machine, mount, 2 * GIB) // 2 // (2 * MIB) * (2 * MIB)
    with allocated(path, size):
        found = helper(machine, "pointers", "open", path, OPEN_ROUNDS, "bare")
    ratio = found["open_us"] / found["bare_us"]
    timed(machine, f"{size_text(size)}: open to device pointer, at most {OPEN_RATIO} times the driver's own way",
          ratio <= OPEN_RATIO,
          f"{found['open_us']:.0f} us (p90 {found['open_us_p90']:.0f}), of it {found['lease_us']:.0f} us for gpumem_open; "
          f"the bare way {found['bare_us']:.0f} us (p90 {found['bare_us_p90']:.0f}); ratio {ratio:.2f}; "
          f"medians of {OPEN_ROUNDS}, turn by turn; {chunks_text(found)}")
    machine.report.note(f"{size_text(size)}: gpumem_close {found['close_us']:.0f} us, "
                        f"unmapping the bare way {found['bare_close_us']:.0f} us")


def open_large(machine, mount):
    path, size = mount.gpu() / "large", room(machine, mount, LARGE)
    start = time.monotonic()
    with allocated(path, size):
        made = time.monotonic() - start
        found = helper(machine, "pointers", "open", path, LARGE_ROUNDS, "alone")
    timed(machine, f"{size_text(size)}: open to device pointer in at most {LARGE_MICROSECONDS / 1000:g} ms",
          found["open_us"] <= LARGE_MICROSECONDS,
          f"{found['open_us']:.0f} us (p90 {found['open_us_p90']:.0f}), of it {found['lease_us']:.0f} us for gpumem_open; "
          f"median of {LARGE_ROUNDS}; {chunks_text(found)}; gpumem_close {found['close_us']:.0f} us"
          + ("" if size == LARGE else f"; not {size_text(LARGE)}: {size_text(size)} is three quarters of what is free"))
    machine.report.note(f"{size_text(size)}: posix_fallocate took {made * 1000:.0f} ms")


def large_beside_bare(machine, mount):
    """The driver's share of the time for a large file. The file and as much other memory must fit."""
    path, size = mount.gpu() / "half", room(machine, mount, LARGE) // 2 // GIB * GIB
    if size == 0:
        return
    with allocated(path, size):
        found = helper(machine, "pointers", "open", path, LARGE_ROUNDS, "bare")
    machine.report.note(f"{size_text(size)}: open to device pointer {found['open_us']:.0f} us, the bare way {found['bare_us']:.0f} us, "
                        f"ratio {found['open_us'] / found['bare_us']:.2f}; {chunks_text(found)}")


def check_seen(machine, who, found, ways):
    """A row for each way of counting the words."""
    texts = {"read": "read(2) gives it", "copy": "a copy by the GPU has it", "kernel": "a kernel reads it"}
    for way in ways:
        what = f"{who}: {texts[way]}"
        if way not in found:
            machine.report.absent(what, "the stand-in driver runs no kernels" if machine.standin
                                  else "this libcuda.so.1 runs no kernels")
        else:
            machine.report.check(what, found[way] == found["words"], f"{found[way]:.0f} of {found['words']:.0f} words right")


def store(machine, path):
    """Checks the stores, and returns their figures."""
    storing = Background(machine, "stored", "pointers", "store", path, BATCHES, SEED)
    try:
        found = storing.wait_ready()
        ratio = found["store_ns"] / found["raw_ns"]
        timed(machine, f"64 B store through the CPU pointer: at most {STORE_RATIO} times a raw BAR store", ratio <= STORE_RATIO,
              f"{found['store_ns']:.0f} ns (p90 {found['store_ns_p90']:.0f}), raw {found['raw_ns']:.0f} ns "
              f"(p90 {found['raw_ns_p90']:.0f}), each with its sfence; ratio {ratio:.2f}; medians of {BATCHES} batches "
              f"of 10000, turn by turn; both through {found['provider']}")
        check_seen(machine, "what the CPU stored, in the same process", found, ("copy", "kernel"))
        check_seen(machine, "what the CPU stored, in another process", helper(machine, "sharers", "see", path, SEED),
                   ("read", "copy", "kernel"))
        storing.end()
        return found
    finally:
        storing.kill()


def store_in_new_file(machine, mount):
    path = mount.gpu() / "stored"
    with allocated(path, room(machine, mount, 64 * MIB)):
        store(machine, path)


# --- kill -9

def lease_pids(mount):
    lines = (mount.path / ".gpumem" / "mappings").read_text().splitlines()
    return sorted(int(line.split("\t")[3].split()[-1]) for line in lines if line.split("\t")[1] == "lease")


def memory(machine, mount):
    stats = mount.stats()
    return {"nvidia-smi": machine.smi_memory(0, mount)["used"], "free_bytes": stats["free_bytes"],
            "file_bytes": stats["file_bytes"]}


def comes_back(machine, mount, what, before):
    """Compares used memory, by nvidia-smi and by the daemon's figures, and the bytes of files, with an earlier state."""
    now = {}

    def same():
        now.update(memory(machine, mount))
        return all(abs(now[name] - before[name]) <= (0 if name == "file_bytes" else 16 * MIB) for name in now)

    ok = machine.settles(same, 10)
    used = "nvidia-smi" if machine.smi else "the daemon"
    machine.report.check(f"{what}: used memory is what it was, by {used} and .gpumem/stats.json", ok,
                         f"{used} {before['nvidia-smi'] // MIB} MiB used before, {now['nvidia-smi'] // MIB} after; "
                         f"stats.json {before['free_bytes'] // MIB} MiB free before, {now['free_bytes'] // MIB} after; "
                         f"files {before['file_bytes'] // MIB} and {now['file_bytes'] // MIB} MiB")


def leases_are(machine, mount, what, wanted):
    start = time.monotonic()
    ok = machine.settles(lambda: lease_pids(mount) == sorted(wanted), 10)
    found = lease_pids(mount)
    machine.report.check(what, ok, f"{len(found)} leases, after {(time.monotonic() - start) * 1000:.0f} ms")


def bytes_are_right(machine, what, path, size):
    found = helper(machine, "sharers", "see", path, SEED)
    ways = [way for way in ("read", "copy", "kernel") if way in found]
    machine.report.check(what, all(found[way] == size // 4 for way in ways),
                         ", ".join(f"{way} {found[way]:.0f}" for way in ways) + f" of {size // 4} words right")


def kill_two(machine, mount, path, size):
    """A process that wrote the file and maps it, and a second process that maps it."""
    stager = Background(machine, "ready", "sharers", "stage", path, size, SEED)
    sharer = None
    try:
        stager.wait_ready()
        sharer = Background(machine, "ready", "sharers", "hold", path, "device")
        sharer.wait_ready()
        leases_are(machine, mount, "the stager and a sharer map the file: a lease each", [stager.process.pid, sharer.process.pid])
        sharer.kill()
        leases_are(machine, mount, "kill -9 of the sharer: its lease ends, the stager's stays", [stager.process.pid])
        bytes_are_right(machine, "kill -9 of the sharer: the file's bytes are right", path, size)
        sharer = Background(machine, "ready", "sharers", "hold", path, "device")
        sharer.wait_ready()
        stager.kill()
        leases_are(machine, mount, "kill -9 of the stager: its lease ends, the sharer's stays", [sharer.process.pid])
        bytes_are_right(machine, "kill -9 of the stager: the file's bytes are right", path, size)
        sharer.kill()
        leases_are(machine, mount, "no lease is left", [])
    finally:
        for each in filter(None, (stager, sharer)):
            each.kill()


def kill_many(machine, mount, path, size):
    before = memory(machine, mount)
    start = time.monotonic()
    sharers = [Background(machine, "ready", "sharers", "hold", path, "device" if n < WITH_CONTEXT else "lease")
               for n in range(SHARERS)]
    try:
        for each in sharers:
            each.wait_ready()
        leases_are(machine, mount, f"{SHARERS} sharers, {WITH_CONTEXT} of them with a mapping in a context: a lease each",
                   [each.process.pid for each in sharers])
        machine.report.say(f"   {SHARERS} sharers were there after {time.monotonic() - start:.1f} s")
        for each in sharers:
            each.process.kill()
    finally:
        for each in sharers:
            each.kill()
    leases_are(machine, mount, f"kill -9 of {SHARERS} sharers at once: no lease is left", [])
    bytes_are_right(machine, f"kill -9 of {SHARERS} sharers at once: the file's bytes are right", path, size)
    comes_back(machine, mount, f"kill -9 of {SHARERS} sharers at once", before)


def kill(machine, mount):
    path, size = mount.gpu() / "shared", min(256 * MIB, room(machine, mount, GIB) // 4 // (2 * MIB) * (2 * MIB))
    before = memory(machine, mount)
    guarded(machine, "kill -9 of a sharer and of the stager", lambda: kill_two(machine, mount, path, size))
    guarded(machine, f"kill -9 of {SHARERS} sharers at once", lambda: kill_many(machine, mount, path, size))
    path.unlink(missing_ok=True)
    comes_back(machine, mount, "after rm", before)


# --- many cycles

def cycles(machine, mount):
    path = mount.gpu() / "cycled"
    path.write_bytes(os.urandom(2 * MIB))
    before = memory(machine, mount)
    found = helper(machine, "sharers", "cycles", path, CYCLES, mount.daemon(), timeout=60)
    what = f"{CYCLES} times open, map and close"
    bounds = {"fds": (0, 1, ""), "mappings": (3, 1, ""), "rss": (4096, 1, " KiB"), "daemon_fds": (0, 1, ""),
              "daemon_rss": (8192, 1, " KiB"), "gpu": (2 * MIB, MIB, " MiB")}
    names = {"fds": "descriptors", "mappings": "mappings", "rss": "resident memory", "daemon_fds": "the daemon's descriptors",
             "daemon_rss": "the daemon's resident memory", "gpu": "used GPU memory"}
    for name, (most, unit, text) in bounds.items():
        early, late = found[f"{name}_early"], found[f"{name}_late"]
        machine.report.check(f"{what}: {names[name]} {'do' if name.endswith(('fds', 'mappings')) else 'does'} not grow",
                             late - early <= most, f"{early / unit:.0f}{text} after a tenth, {late / unit:.0f}{text} at the end")
    machine.report.note(f"{what}: {found['cycle_us']:.0f} us each")
    leases_are(machine, mount, f"{what}: no lease is left", [])
    comes_back(machine, mount, what, before)
    path.unlink()


# --- mappings as the field's libraries test theirs

def mapping_tests(machine):
    whats = {"prog_client_mapping": "use after close and unlink, two mappings, odd and tiny ones, each provider by name",
             "prog_client_forks": "forks after and during a mapping, children that map what their parent opened or handed them"}
    results, closing = mount_run(machine, ["-j", 2, "--timeout", 45, "-k", f"^({'|'.join(whats)})$"], "mapping", 90)
    for name, what in whats.items():
        verdict, reason = results.get(name, ("FAIL", closing))
        if verdict == "skip":
            machine.report.absent(what, reason)
        else:
            machine.report.check(what, verdict == "ok", f"{name}: {reason}")


def opens_and_stores(machine):
    with machine.mount("gpus=0") as mount:
        mount.warm()
        guarded(machine, "open to device pointer, beside the driver's own way", lambda: open_beside_bare(machine, mount))
        guarded(machine, "open to device pointer of a large file", lambda: open_large(machine, mount))
        guarded(machine, "a large file beside the driver's own way", lambda: large_beside_bare(machine, mount))
        guarded(machine, "stores through the CPU pointer", lambda: store_in_new_file(machine, mount))


def ends_and_cycles(machine):
    with machine.mount("gpus=0") as mount:
        mount.warm()
        guarded(machine, "kill -9", lambda: kill(machine, mount))
        guarded(machine, f"{CYCLES} times open, map and close", lambda: cycles(machine, mount))


def point_pointers(machine):
    guarded(machine, "path to pointer", lambda: opens_and_stores(machine))
    guarded(machine, "what is left behind", lambda: ends_and_cycles(machine))
    guarded(machine, "mappings as the field's libraries test theirs", lambda: mapping_tests(machine))


def point_preload(machine):
    deadline = time.monotonic() + PRELOAD_SECONDS
    guarded(machine, "unmodified programs with the preload library", lambda: preload(machine, guarded, deadline))
