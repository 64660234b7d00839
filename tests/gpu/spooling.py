# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""persist=disk: files that are on the disk after an unmount and in the GPU's memory after the next mount, with all
their bytes and attributes, at a share of the disk's own rate in the same run."""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from harness import GIB, MIB, Failure, Mount, median, rate
from pointers import timed
from recovering import described, differences, knows

FILES, TOTAL, STANDIN_TOTAL = 50, 20 * GIB, 128 * MIB
DISK_STREAMS = 4  # of dd at once: the disk's own rate
DISK_SHARE = 0.8  # of it
SAVE_SECONDS = 240
PIECE, STAMP = 8 * MIB, 16
SAVED_MOST = 4 * MIB  # where 12 bytes changed
TMPFS = "tmpfs"


class Spooling(Mount):
    """Its daemon ends when all is saved."""

    def __init__(self, machine, spool, options):
        super().__init__(machine, f"gpus=0,spool={spool},{options}")

    def wait_end(self, _):
        return super().wait_end(SAVE_SECONDS)


def filesystem(path):
    return subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True).stdout.strip()


def takes_direct(place):
    """Whether files there can be written with O_DIRECT."""
    with tempfile.NamedTemporaryFile(dir=place) as file, contextlib.suppress(OSError):
        os.close(os.open(file.name, os.O_WRONLY | os.O_DIRECT))
        return True
    return False


def spool_folder(machine, size):
    """A folder on a disk that has room for the files and for the files of dd."""
    for place in (Path("/var/tmp"), Path("/tmp"), Path.home(), machine.report.out):
        if place.is_dir() and filesystem(place) != TMPFS and shutil.disk_usage(place).free > size * 5 // 4 and takes_direct(place):
            return Path(tempfile.mkdtemp(prefix="gpumemfs-spool.", dir=place))
    return None


# --- the disk

def dd_all(machine, commands):
    """Bytes per second of several dd at once."""
    start = time.monotonic()
    machine.together([lambda c=command: machine.run(["dd", *c, "bs=4M", "status=none"]) for command in commands])
    return time.monotonic() - start


def write_rate(machine, spool, size):
    """The rate at which the disk writes with O_DIRECT."""
    each = max(size // DISK_STREAMS // (4 * MIB), 1) * (4 * MIB)
    files = [spool.parent / f"{spool.name}-dd{number}" for number in range(DISK_STREAMS)]
    try:
        took = dd_all(machine, [[f"if={machine.source()}", f"of={path}", f"count={each // (4 * MIB)}", "oflag=direct",
                                 "conv=fsync"] for path in files])
    finally:
        for path in files:
            path.unlink(missing_ok=True)
    return DISK_STREAMS * each / took


def read_rate(machine, spool, first):
    """The rate at which the disk reads every second saved file with O_DIRECT, from the first or the second on. Files that dd
    has just written are no measure: a virtual disk may still have them in its host's memory."""
    files = sorted((spool / ".spool" / "data").iterdir())[first::2]
    parts = [files[number::DISK_STREAMS] for number in range(DISK_STREAMS)]

    def read(part):
        for path in part:
            machine.run(["dd", f"if={path}", "of=/dev/null", "bs=4M", "iflag=direct", "status=none"])

    start = time.monotonic()
    machine.together([lambda p=part: read(p) for part in parts])
    return sum(path.stat().st_size for path in files) / (time.monotonic() - start)


# --- the files

class Content:
    """Each file has its number, and then a piece from another place of the source."""

    def __init__(self, machine, total):
        self.source = machine.source()
        chance = random.Random(20261122)
        shares = [chance.uniform(0.2, 1.8) for _ in range(FILES)]
        most = machine.size // 2
        self.sizes = [min(int(total * share / sum(shares)), most) for share in shares]
        self.sizes[0] += total - sum(self.sizes)
        self.starts = [chance.randrange(machine.size - size) for size in self.sizes]

    def place(self, number):
        return f"folder{number % 7}/inner/file{number}"

    def pieces(self, number):
        """(offset, bytes) of all of a file."""
        with open(self.source, "rb", buffering=0) as source:
            for at in range(0, self.sizes[number], PIECE):
                piece = os.pread(source.fileno(), min(PIECE, self.sizes[number] - at), self.starts[number] + at)
                yield at, piece if at else str(number).encode().ljust(STAMP) + piece[STAMP:]

    def write(self, top, number):
        path = top / self.place(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb", buffering=0) as file:
            os.ftruncate(file.fileno(), self.sizes[number])
            for at, piece in self.pieces(number):
                os.pwrite(file.fileno(), piece, at)
        os.setxattr(path, "user.number", str(number).encode())
        os.chmod(path, 0o600 + number)
        os.chown(path, 1000 + number, 2000 + number)
        os.utime(path, ns=(number * 10**9 + 123456789, number * 10**9 + 987654321))

    def is_right(self, top, number):
        with contextlib.suppress(OSError), open(top / self.place(number), "rb", buffering=0) as file:
            return os.fstat(file.fileno()).st_size == self.sizes[number] and \
                all(os.pread(file.fileno(), len(piece), at) == piece for at, piece in self.pieces(number))
        return False


def write_all(machine, content, top):
    top.mkdir()
    os.setxattr(top, "user.gpumem.persist", b"disk")
    start = time.monotonic()
    machine.together([lambda n=number: content.write(top, n) for number in range(FILES)])
    took = time.monotonic() - start
    os.link(top / content.place(1), top / "hard")
    (top / "symbolic").symlink_to(content.place(2))
    with open(top / "sparse", "wb") as file:
        os.pwrite(file.fileno(), b"in the middle", 7 * MIB + 17)
        file.truncate(64 * MIB)
    os.chmod(top / "folder3", 0o750)
    return took


def attributes(top):
    """The state of a file that the next mount must restore, without the bytes and without the fields that each mount sets."""
    return {str(path.relative_to(top)): described(path) for path in [top, *top.rglob("*")]}


def wrong_files(machine, content, top):
    right = machine.together([lambda n=number: content.is_right(top, n) for number in range(FILES)])
    wrong = [content.place(number) for number in range(FILES) if not right[number]]
    if (top / "sparse").read_bytes() != bytes(7 * MIB + 17) + b"in the middle" + bytes(64 * MIB - 7 * MIB - 30):
        wrong.append("sparse")
    return wrong


def check_back(machine, label, content, top, before):
    wrong = wrong_files(machine, content, top)
    machine.report.check(f"{label}: all bytes are back", not wrong, " ".join(wrong[:5]) or f"{FILES} files, {sum(content.sizes)} bytes")
    lost = differences(before, attributes(top))
    kept = {os.getxattr(path, "user.gpumem.persist") for path in (top, *(top / content.place(n) for n in range(FILES)))}
    machine.report.check(f"{label}: all are persist=disk still", kept == {b"disk"}, str(sorted(kept)))
    machine.report.check(f"{label}: all names, attributes, links and times are back", lost is None, lost or f"{len(before)} names")
    blocks = (top / "sparse").stat().st_blocks * 512
    machine.report.check(f"{label}: a hole is one again", blocks < 64 * MIB, f"{blocks // MIB} of 64 MiB")


# --- the point

def save_and_end(machine, spool, content, total):
    """The attributes of the files written, and the seconds that the unmount took."""
    with Spooling(machine, spool, "restore=now") as mount:
        mount.warm()
        top = mount.gpu() / "kept"
        took = write_all(machine, content, top)
        before = attributes(top)
        machine.report.note(f"{FILES} files written into the GPU at {rate(total, took)}")
        start = time.monotonic()
    return before, time.monotonic() - start


def brought_back(mount):
    return json.loads((mount.path / ".gpumem" / "stats.json").read_text())["spool"]["fetched_bytes"]


def back_at_once(machine, spool, content, before):
    """Seconds from the start until the daemon says that all bytes are in the GPU."""
    total = sum(content.sizes)
    start = time.monotonic()
    with Spooling(machine, spool, "restore=now") as mount:
        mounted = time.monotonic() - start
        top = mount.gpu() / "kept"
        if not machine.settles(lambda: brought_back(mount) >= total, SAVE_SECONDS):
            raise Failure(f"restore=now: {brought_back(mount)} of {total} bytes after {SAVE_SECONDS} s")
        took = time.monotonic() - start
        machine.report.note(f"restore=now: mounted after {mounted:.2f} s, all bytes in the GPU after {took:.2f} s")
        check_back(machine, "restore=now", content, top, before)
        start = time.monotonic()
    machine.report.note(f"unmounted with nothing changed: {time.monotonic() - start:.2f} s")
    return took


def back_when_wanted(machine, spool, content, before):
    start = time.monotonic()
    with Spooling(machine, spool, "restore=lazy") as mount:
        mounted = time.monotonic() - start
        top = mount.gpu() / "kept"
        lost = differences(before, attributes(top))
        resident = mount.stats()["file_bytes"]
        times = []
        for number in range(5):
            start = time.monotonic()
            with open(top / content.place(number), "rb", buffering=0) as file:
                file.read(4096)
            times.append(time.monotonic() - start)
        right = all(content.is_right(top, number) for number in range(5))
    machine.report.check("restore=lazy: all names and attributes are there at once, and the bytes when they are read",
                         lost is None and right and resident < sum(content.sizes) // 10,
                         lost or f"mounted after {mounted:.2f} s with {resident // MIB} MiB in the GPU; the first 4 KiB of a "
                         f"file of {median(content.sizes[:5]) // MIB} MiB after {median(times) * 1000:.0f} ms")


def save_command(machine, spool, content):
    """gpumem save of a file with a small change, then kill -9: saved bytes are there, unsaved bytes are as before."""
    with Spooling(machine, spool, "restore=lazy,recovery=off") as mount:
        top = mount.gpu() / "kept"
        saved, unsaved = (top / content.place(number) for number in (3, 4))
        for path in (saved, unsaved):
            with open(path, "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), b"another text", 1000)
        start = time.monotonic()
        said = machine.run([machine.build / "gpumem", "save", saved]).stdout
        took = time.monotonic() - start
        mount.kill()
    with Spooling(machine, spool, "restore=lazy") as mount:
        top = mount.gpu() / "kept"
        found = []
        for number in (3, 4):
            with open(top / content.place(number), "rb", buffering=0) as file:
                found.append(os.pread(file.fileno(), 12, 1000) == b"another text")
        unchanged = content.is_right(top, 4)
    machine.report.check("gpumem save, then kill -9: what was saved is there, and of what was not, all that was there before",
                         found == [True, False] and unchanged,
                         f"12 bytes changed in {content.sizes[3] // MIB} MiB, saved after {took * 1000:.0f} ms")
    written = re.search(r"1 saved, (\d+)([KM]) written", said)
    written = int(written[1]) * {"K": 1024, "M": MIB}[written[2]] if written else None
    machine.report.check(f"gpumem save writes what changed: at most {SAVED_MOST // MIB} MiB", written is not None and written <= SAVED_MOST,
                         said.strip())


def go_through(machine, spool, total):
    content = Content(machine, total)
    wrote = write_rate(machine, spool, total // 10)
    before, saving = save_and_end(machine, spool, content, total)
    wrote = max(wrote, write_rate(machine, spool, total // 10))
    timed(machine, f"unmount saves {total // MIB} MiB: at least {DISK_SHARE} of the disk's own rate", total / saving >= DISK_SHARE * wrote,
          f"{rate(total, saving)} ({saving:.1f} s); {DISK_STREAMS} dd with O_DIRECT {rate(wrote, 1)}; ratio {total / saving / wrote:.2f}")
    read = read_rate(machine, spool, 0)
    reading = back_at_once(machine, spool, content, before)
    read = max(read, read_rate(machine, spool, 1))
    timed(machine, f"mount brings {total // MIB} MiB back: at least {DISK_SHARE} of the disk's own rate", total / reading >= DISK_SHARE * read,
          f"{rate(total, reading)} from the start to the last byte in the GPU ({reading:.1f} s); "
          f"{DISK_STREAMS} dd of the same files with O_DIRECT {rate(read, 1)}; ratio {total / reading / read:.2f}")
    back_when_wanted(machine, spool, content, before)
    save_command(machine, spool, content)


def point_spool(machine):
    total = STANDIN_TOTAL if machine.standin else TOTAL
    what = f"{FILES} files with persist=disk"
    if not knows(machine, "spool"):
        machine.report.absent(what, "this gpumemfs has no option spool")
        return
    spool = spool_folder(machine, total)
    if not spool:
        machine.report.absent(what, f"no disk here has {total * 5 // 4 // MIB} MiB free and takes O_DIRECT")
        return
    try:
        machine.report.note(f"spool: {spool}, {filesystem(spool)}")
        if machine.size < total // FILES * 4:
            raise Failure(f"GPUMEM_GPU_SIZE has to be {total // FILES * 4 // MIB}M at least")
        go_through(machine, spool, total)
    finally:
        shutil.rmtree(spool)
