# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Unmodified programs with libgpumem-preload.so and without: the rate of dd, and that all programs see the same
bytes."""

import hashlib
import os
import re
import sys
import time

from harness import GIB, MIB, Failure, compare, median, rate

DD_RATIO, DD_ROUNDS, DD_ROUNDS_MIN = 1.5, 5, 3
DD_BYTES, COPY_BYTES = 16 * GIB, 2 * GIB
OTHER_SECONDS = 10  # for the rows after dd
LIBRARY = "libgpumem-preload.so"
# Reads a file through its mapping, changes the beginning, and prints the sum of the bytes read.
MMAP_SCRIPT = r"""
import hashlib, mmap, sys
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
    print(hashlib.sha256(mapping[:]).hexdigest())
    mapping[100:100 + len(sys.argv[2])] = sys.argv[2].encode()
    mapping.flush()
"""


def library_of(machine):
    places = (machine.build, machine.build / "lib")
    return next((path for folder in places for path in (folder / LIBRARY, folder / (LIBRARY + ".0")) if path.exists()), None)


def preloaded(machine, library, **more):
    return dict(machine.env, LD_PRELOAD=str(library), **more)


def dd_seconds(machine, source, target, size, conv, env):
    words = ["dd", f"if={source}", f"of={target}", "bs=1M", f"count={size // MIB}", *conv]
    said = machine.run(words, env=env, timeout=40).stderr
    found = re.search(r"^(\d+) bytes.* copied, ([\d.e-]+) s", said, re.M)
    if not found or int(found[1]) != size:
        raise Failure("dd: " + " / ".join(said.splitlines()[-2:]))
    return float(found[2])


def race_dd(machine, mount, library, size, form, conv, budget):
    """Reads /dev/zero, so that the time of the writes counts. With and without the library in turns; a new file each time.
    A slow machine runs fewer rounds."""
    targets = {name: mount.gpu() / f"dd-{name}" for name in ("plain", "preload")}
    envs = {"plain": machine.env, "preload": preloaded(machine, library)}
    times = {name: [] for name in targets}
    if conv:
        for target in targets.values():
            dd_seconds(machine, "/dev/zero", target, size, [], machine.env)
    start = time.monotonic()
    while len(times["plain"]) < DD_ROUNDS and (len(times["plain"]) < DD_ROUNDS_MIN or time.monotonic() - start < budget):
        for name, target in targets.items():
            if not conv:
                target.unlink(missing_ok=True)
            times[name].append(dd_seconds(machine, "/dev/zero", target, size, conv, envs[name]))
    plain, fast = median(times["plain"]), median(times["preload"])
    what = f"dd of {size // MIB} MiB, {form}: at least {DD_RATIO} times as fast with the preload library"
    figure = (f"{rate(size, fast)} ({fast:.2f} s), without {rate(size, plain)} ({plain:.2f} s), ratio {plain / fast:.2f}; "
              f"medians of {len(times['plain'])}, turn by turn")
    if machine.standin:
        machine.report.absent(what, figure + "; no rate is asked of the stand-in")
    else:
        machine.report.check(what, plain / fast >= DD_RATIO, figure)
    for target in targets.values():
        target.unlink()


def same_bytes(machine, mount, library, size):
    """A copy of random bytes, into a new file and over an old file."""
    target = mount.gpu() / "copied"
    for form, conv in (("a new file", ()), ("over a file", ("conv=notrunc",))):
        said = machine.run(["dd", f"if={machine.source()}", f"of={target}", "bs=1M", f"count={size // MIB}", "status=none", *conv],
                           env=preloaded(machine, library, GPUMEM_PRELOAD_STATS="1"))
        machine.report.note(f"GPUMEM_PRELOAD_STATS=1 dd of {size // MIB} MiB, {form}:\n" +
                            ((said.stdout + said.stderr).strip() or "nothing"))
        differs = compare(target, machine.source(), size, machine.cpus)
        machine.report.check(f"dd with the preload library, {form}: the same bytes", differs is None,
                             f"{size // MIB} MiB compared" if differs is None else f"differs at {differs}")
    target.unlink()


def other_programs(machine, mount, library, size):
    """cat, and Python with mmap(2), over a file that dd wrote without the library."""
    path = mount.gpu() / "read"
    machine.run(["dd", f"if={machine.source()}", f"of={path}", "bs=1M", f"count={size // MIB}", "status=none"])
    plain = machine.sums(path)[0]
    with_it = machine.shell('LD_PRELOAD="$1" cat "$2" | sha256sum', library, path).stdout.split()[0]
    machine.report.check("cat with the preload library: the same bytes", with_it == plain, f"sha256 of {size // MIB} MiB {with_it[:16]}...")
    mark = "written through a mapping"
    small = mount.gpu() / "mapped"
    content = os.urandom(2 * MIB + 77)
    small.write_bytes(content)
    seen = machine.run([sys.executable, "-c", MMAP_SCRIPT, small, mark], env=preloaded(machine, library)).stdout.strip()
    machine.report.check("Python's mmap with the preload library: the same bytes",
                         seen == hashlib.sha256(content).hexdigest(), f"sha256 of {len(content)} bytes {seen[:16]}...")
    wanted = content[:100] + mark.encode() + content[100 + len(mark):]
    machine.report.check("what Python's mmap stored with the preload library, read(2) gives without it",
                         small.read_bytes() == wanted, f"{len(mark)} bytes at 100, and the rest as it was")
    path.unlink()
    small.unlink()


def preload(machine, guarded, deadline):
    library = library_of(machine)
    if not library:
        machine.report.absent("dd with the preload library", "no preload library in this build")
        return
    with machine.mount("gpus=0") as mount:
        mount.warm()
        free = machine.smi_memory(0, mount)["free"]
        size = min(2 * machine.size if machine.standin else DD_BYTES, free // 4) // MIB * MIB
        forms = (("a new file", ()), ("over a file", ("conv=notrunc",)))
        for number, (form, conv) in enumerate(forms):
            budget = (deadline - OTHER_SECONDS - time.monotonic()) / (len(forms) - number)
            guarded(machine, f"dd with the preload library, {form}",
                    lambda f=form, c=conv, b=budget: race_dd(machine, mount, library, size, f, c, b))
        copied = min(COPY_BYTES, machine.size) // MIB * MIB
        guarded(machine, "dd with the preload library: the same bytes", lambda: same_bytes(machine, mount, library, copied))
        guarded(machine, "cat and Python's mmap with the preload library",
                lambda: other_programs(machine, mount, library, min(size, 256 * MIB)))
