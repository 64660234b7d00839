# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Points 1 to 3: bytes in and out, every way to a GPU's memory, memory seen by others."""

import errno
import os
import random
import time

from harness import MIB, Failure, rate

WRITERS = 16
PARALLEL_DD = r'''
pids=()
for ((i = 0; i < $3; i++)); do
	dd if="$1" of="$2" bs=1M skip=$((i * $4)) seek=$((i * $4)) count=$4 conv=notrunc status=none &
	pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done'''


def grown_by(machine, mount, before, size):
    """Compares nvidia-smi's used memory with the value before: whole chunks, in whole MiB."""
    slack = max(4 * MIB, size // 256)
    state = {}

    def settled():
        state["grown"] = machine.smi_memory(0, mount)["used"] - before
        return abs(state["grown"] - size) <= slack

    return machine.settles(settled), state["grown"]


def stage(machine, mount, name):
    """Stages the source in one of three ways; returns the seconds."""
    source, target = machine.source(), mount.gpu() / name
    start = time.monotonic()
    if name == "dd":
        machine.run(["dd", f"if={source}", f"of={target}", "bs=1M", "status=none"])
    elif name == "cp":
        machine.run(["cp", source, target])
    else:
        count = -(-machine.size // MIB // WRITERS)
        target.touch()
        machine.shell(PARALLEL_DD, source, target, WRITERS, count)
    return time.monotonic() - start


def check_df(machine, mount, when):
    shown = machine.run(["df", "-B1", "--output=size,avail", mount.gpu()]).stdout.split()[-2:]
    total, avail = map(int, shown)
    memory = machine.smi_memory(0, mount)
    off = max(abs(total - memory["total"]), abs(avail - memory["free"])) / memory["total"]
    machine.report.check(f"df of gpu0 agrees with the driver within 1 % ({when})", off <= 0.01,
                         f"off by {off:.2%} of the memory")


def point_staging(machine):
    report, size = machine.report, machine.size
    machine.source()
    with machine.mount() as mount:
        mount.warm()
        if not machine.smi:
            report.absent("figures of nvidia-smi", "it is not here: the daemon's own are used instead")
        before = machine.smi_memory(0, mount)["used"]
        check_df(machine, mount, "empty")
        seconds = {}
        for number, name in enumerate(("dd", "cp", "16 writers")):
            seconds[name] = stage(machine, mount, name)
            ok, grown = grown_by(machine, mount, before, size * (number + 1))
            report.check(f"{name}: used memory grows by the file's size", ok,
                         f"{(grown - size * number) / MIB:.0f} MiB for {size / MIB:.0f} MiB")
        check_df(machine, mount, "with three files")
        start = time.monotonic()
        sums = machine.sums(machine.source(), *(mount.gpu() / name for name in seconds))
        report.say(f"   four sums in {time.monotonic() - start:.1f} s: {sums[0]}")
        for name, found in zip(seconds, sums[1:]):
            report.check(f"{name}: cat | sha256sum equals the source's", found == sums[0],
                         f"{rate(size, seconds[name])}, {seconds['dd'] / seconds[name]:.2f} of dd's rate")
        for left, name in zip((2, 1, 0), seconds):
            (mount.gpu() / name).unlink()
            ok, grown = grown_by(machine, mount, before, size * left)
            report.check(f"{name}: used memory comes back after rm", ok,
                         f"{(grown - size * left) / MIB:+.0f} MiB")


def request_sizes(size, seed):
    """Offsets and lengths that cover size bytes: 64 B to 4 MiB, as many of each power of two."""
    rng = random.Random(seed)
    offset = 0
    while offset < size:
        length = min(int(2 ** rng.uniform(6, 22)), size - offset)
        yield offset, length
        offset += length


def write_mixed(source, target, size, seed):
    with open(source, "rb", buffering=0) as data, open(target, "r+b", buffering=0) as file:
        for offset, length in request_sizes(size, seed):
            if os.pwrite(file.fileno(), os.pread(data.fileno(), length, offset), offset) != length:
                raise Failure(f"short write at {offset}")


def reads_equal(source, target, size, seed):
    with open(source, "rb", buffering=0) as data, open(target, "rb", buffering=0) as file:
        return all(os.pread(file.fileno(), length, offset) == os.pread(data.fileno(), length, offset)
                   for offset, length in request_sizes(size, seed))


def attribute(path, name, value=None):
    if value is not None:
        os.setxattr(path, f"user.gpumem.{name}", value.encode())
    return os.getxattr(path, f"user.gpumem.{name}").decode()


def copy_way(machine, mount, way, other, label):
    """A file that is written and read on one path (BAR or DMA), and read again on the other path."""
    target, size = mount.gpu() / way, machine.size // 16
    target.touch()
    attribute(target, "copy", way)
    if way == "bar":
        attribute(target, "mapping", "persistent")
    start = time.monotonic()
    write_mixed(machine.source(), target, size, 1)
    wrote = time.monotonic() - start
    start = time.monotonic()
    same = reads_equal(machine.source(), target, size, 2)
    read = time.monotonic() - start
    mapped = int(attribute(target, "mapped"))
    figures = f"{size // MIB} MiB of 64 B to 4 MiB written at {rate(size, wrote)}, read at {rate(size, read)}"
    machine.report.check(f"{label}, copy={way}: the same bytes", same, figures)
    if way == "bar":
        machine.report.check(f"{label}, copy=bar: the file is mapped", mapped >= size, f"{mapped // MIB} MiB")
    elif way == "dma":
        machine.report.check(f"{label}, copy=dma: the file is not mapped", mapped <= 2 * MIB,
                             f"{mapped // 1024} KiB, in a chunk that it shares with others")
    if other:
        attribute(target, "copy", other)
        machine.report.check(f"{label}: written with copy={way}, read with copy={other}",
                             reads_equal(machine.source(), target, size, 3))
    target.unlink()


def without_bar(machine, mount, label):
    probe = mount.gpu() / "probe"
    probe.touch()
    try:
        attribute(probe, "copy", "bar")
        refused = "not refused"
    except OSError as error:
        refused = errno.errorcode[error.errno]
    machine.report.check(f"{label}: copy=bar is refused without a mapping",
                         refused in ("ENOTSUP", "EOPNOTSUPP"), refused)
    copy_way(machine, mount, "dma", None, label)


def point_copies(machine):
    report = machine.report
    for provider in ("auto", "dmabuf", "gdrcopy", "vulkan", "off"):
        label = f"bar={provider}"
        with machine.mount(f"bar={provider}") as mount:
            mount.warm()
            params = mount.params()
            said = params["gpu0.bar"]
            report.check(f"{label}: .gpumem/params says what is in use", said != "", said)
            if provider == "auto":
                report.note("\n".join(f"{k} {v}" for k, v in params.items()))
                copy_way(machine, mount, "auto", None, label)
            if said.startswith("none"):
                if provider != "off":
                    report.absent(f"a mapping through bar={provider}", said.partition(":")[2].strip() or said)
                without_bar(machine, mount, label)
                continue
            report.check(f"{label}: crossovers were measured",
                         all("measured" in params[f"gpu0.crossover_{way}"] for way in ("write", "read")),
                         "write {}, read {}".format(params["gpu0.crossover_write"], params["gpu0.crossover_read"]))
            copy_way(machine, mount, "bar", "dma", label)
            copy_way(machine, mount, "dma", "bar", label)


def point_sharing(machine):
    report = machine.report
    mountpoint = machine.scratch / "share"
    mountpoint.mkdir()
    large = max(machine.size // 32, 8 * MIB)
    result = machine.run([machine.build / "gpu" / "share", mountpoint, "-o", "backend=cuda,max_chunk=16M,log_level=warn"],
                         check=False, env=dict(machine.env, SHARE_BYTES=str(large)))
    said = result.stdout
    report.note(said + result.stderr)
    report.check("another process with its own context sees what dd wrote, in a file of many chunks and in a small one",
                 said.count("are what dd wrote") == 2)
    report.check("what its memset wrote, cat shows", said.count("memset: ran") == 2 and
                 said.count("cat shows what the other process wrote") == 2)
    if machine.standin:
        report.absent("what its kernel wrote, cat shows", "the stand-in driver runs no kernels")
    else:
        report.check("what its kernel wrote, cat shows", said.count("kernel: ran") == 2 and
                     said.count("cat shows what the other process wrote") == 2)
    report.check("all of it ends cleanly", result.returncode == 0)
    mountpoint.rmdir()
