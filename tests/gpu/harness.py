# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Shared by the points of tests/gpu/run: the report, mounts, commands, the driver's own figures."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30
SHOWN, NOT_SHOWN, ABSENT = "shown", "**not shown**", "not on this machine"


class Failure(Exception):
    """A point could not be completed: the reason, in one line."""


class TookTooLong(Failure):
    """A program did not end in time."""


class Report:
    """The results: at once on the terminal and in the log, and as a document at the end."""

    def __init__(self, out):
        self.out, self.start, self.points, self.head = out, time.monotonic(), [], []
        self.lock = threading.Lock()
        out.mkdir(parents=True, exist_ok=True)
        self.log_file = open(out / "log", "w", encoding="utf-8", errors="replace")

    def elapsed(self):
        return time.monotonic() - self.start

    def log(self, text):
        with self.lock:
            self.log_file.write(text.rstrip("\n") + "\n")
            self.log_file.flush()

    def say(self, text):
        line = f"[{self.elapsed():6.1f} s] {text}"
        print(line, flush=True)
        self.log(line)

    def begin(self, title):
        self.points.append({"title": title, "rows": [], "notes": [], "start": time.monotonic()})
        self.say(f"== {title}")

    def end(self):
        self.points[-1]["seconds"] = time.monotonic() - self.points[-1]["start"]
        self.write()

    def row(self, what, verdict, figure=""):
        self.points[-1]["rows"].append((what, verdict, figure))
        self.say(f"{verdict.strip('*'):20} {what}{': ' + figure if figure else ''}")

    def check(self, what, ok, figure=""):
        self.row(what, SHOWN if ok else NOT_SHOWN, figure)
        return ok

    def absent(self, what, reason):
        self.row(what, ABSENT, reason)

    def note(self, text):
        self.points[-1]["notes"].append(text)
        for line in text.splitlines():
            self.say("  " + line)

    def count(self, verdict):
        return sum(row[1] == verdict for point in self.points for row in point["rows"])

    def write(self):
        lines = ["# gpumemfs on a GPU", ""] + [f"- {line}" for line in self.head] + [""]
        for point in self.points:
            lines += [f"## {point['title']} ({point.get('seconds', 0):.1f} s)", "",
                      "| what | result | figures |", "|---|---|---|"]
            lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
                      for row in point["rows"]]
            for note in point["notes"]:
                lines += ["", "```", note.rstrip("\n"), "```"]
            lines.append("")
        lines += [f"{self.count(SHOWN)} shown, {self.count(NOT_SHOWN)} not shown, "
                  f"{self.count(ABSENT)} not on this machine", ""]
        (self.out / "results.md").write_text("\n".join(lines), encoding="utf-8")


class Mount:
    """A daemon in the foreground on a mountpoint of its own."""

    live, made, own_session = set(), 0, False

    def __init__(self, machine, options="", env=None, backend="cuda"):
        self.machine = machine
        Mount.made += 1
        self.path = machine.scratch / f"mnt{Mount.made}"
        self.log_path = machine.scratch / f"{self.path.name}.log"
        self.path.mkdir()
        self.options = ",".join(filter(None, [f"backend={backend},log_level=info", options]))
        self.argv, self.env = [machine.build / "gpumemfs", "-f", self.path, "-o", self.options], dict(machine.env, **(env or {}))
        machine.report.log("+ " + " ".join(map(str, self.argv)))
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=self.own_session)
        Mount.live.add(self)

    def __enter__(self):
        start = time.monotonic()
        while not self.is_mounted():
            if self.process.poll() is not None or time.monotonic() - start > 30:
                self.kill()
                raise Failure("no mount: " + " / ".join(self.log_text().splitlines()[-2:]))
            time.sleep(0.005)
        (self.path / "gpu0").stat()
        return self

    def __exit__(self, *_):
        if self not in Mount.live:  # killed on purpose
            self.machine.report.log(self.log_text())
            self.path.rmdir()
            return
        result = self.machine.run(["umount", self.path], check=False)
        try:
            status = self.wait_end(20) if result.returncode == 0 else None
        except subprocess.TimeoutExpired:
            status = None
        self.kill()
        self.machine.report.log(self.log_text())
        self.path.rmdir()
        if status != 0:
            self.machine.report.check("the daemon ends cleanly with its mount", False,
                                      result.stderr.strip() or f"status {status}")

    def daemon(self):
        """The process that serves, whether or not it has a keeper, which starts no other program."""
        pid = self.process.pid
        started = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(started[0]) if started else pid

    def processes(self):
        return {self.process.pid, self.daemon()}

    def wait_end(self, seconds):
        return self.process.wait(seconds)

    def kill_processes(self):
        """Stops both first: of keeper and daemon, each replaces the other if only one is killed."""
        if self.process.poll() is not None:
            return
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)

    def kill(self):
        self.kill_processes()
        self.process.wait()
        if self.is_mounted():
            subprocess.run(["umount", "-l", self.path], check=False)
        Mount.live.discard(self)

    def is_mounted(self):
        return f" {self.path} " in Path("/proc/self/mountinfo").read_text()

    def log_text(self):
        return self.log_path.read_text(errors="replace")

    def gpu(self, index=0):
        return self.path / f"gpu{index}"

    def params(self):
        lines = (self.path / ".gpumem" / "params").read_text().splitlines()
        return dict(line.partition(" ")[::2] for line in lines)

    def stats(self, index=0):
        volumes = json.loads((self.path / ".gpumem" / "stats.json").read_text())["volumes"]
        return volumes[index]

    def touch(self, gpu, number):
        path = self.gpu(gpu) / f"warm{number}"
        path.write_bytes(bytes(MIB))
        path.read_bytes()
        path.unlink()

    def warm(self, *gpus):
        """Makes the contexts and every worker's streams, which take some MiB of the GPU once, and
        waits until the crossovers were measured."""
        for gpu in gpus or (0,):
            (self.gpu(gpu) / "warm").write_bytes(bytes(MIB))
            with concurrent.futures.ThreadPoolExecutor(64) as pool:
                list(pool.map(lambda n: self.touch(gpu, n), range(256)))
            for _ in range(500):
                params = self.params()
                if "measured" in params[f"gpu{gpu}.crossover_write"] or \
                        params[f"gpu{gpu}.bar"].startswith("none"):
                    break
                time.sleep(0.01)
            (self.gpu(gpu) / "warm").unlink()
        time.sleep(0.2)


class Machine:
    """The folders of the programs, the interpreter, and the properties of this machine."""

    def __init__(self, args, report):
        self.build, self.size, self.report = args.build, args.size, report
        self.standin = args.backend == "standin"
        self.unshared = ""  # why no program can use a GPU beside the daemon
        self.scratch = args.scratch
        self.cpus = len(os.sched_getaffinity(0))
        self.env = dict(os.environ, LC_ALL="C")
        if self.standin:
            self.env["LD_LIBRARY_PATH"] = f"{self.build}/driver:{self.env.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        icd = Path("/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json")
        if icd.exists() and not self.standin:
            self.env.setdefault("VK_DRIVER_FILES", str(icd))
        self.smi = None if self.standin else shutil.which("nvidia-smi")
        self.gpus = 0
        self._source = None

    def run(self, argv, check=True, timeout=120, env=None, **more):
        self.report.log("+ " + " ".join(map(str, argv)))
        try:
            result = subprocess.run(list(map(str, argv)), env=env or self.env, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    errors="replace", timeout=timeout, check=False, **more)
        except subprocess.TimeoutExpired as slow:
            said = slow.stdout or b""
            self.report.log(said if isinstance(said, str) else said.decode(errors="replace"))
            raise TookTooLong(f"{argv[0]} took more than {timeout} s") from None
        self.report.log(result.stdout + result.stderr)
        if check and result.returncode:
            said = (result.stderr or result.stdout).strip().splitlines()
            raise Failure(f"{argv[0]}: status {result.returncode}: {' / '.join(said[-2:])}")
        return result

    def shell(self, script, *words, **more):
        return self.run(["bash", "-o", "pipefail", "-ec", script, "sh", *words], **more)

    def together(self, calls):
        with concurrent.futures.ThreadPoolExecutor(max(self.cpus, 4)) as pool:
            return list(pool.map(lambda call: call(), calls))

    def sums(self, *paths):
        """cat | sha256sum of several files at once."""
        return [result.stdout.split()[0] for result in self.together(
            [lambda p=path: self.shell('cat "$1" | sha256sum', p) for path in paths])]

    def source(self):
        """Random bytes in memory, made once."""
        if self._source:
            return self._source
        start = time.monotonic()
        path = self.scratch / "source"
        piece = 4 * MIB
        with open(path, "wb") as file:
            file.truncate(self.size)
            def fill(offset):
                os.pwrite(file.fileno(), os.urandom(min(piece, self.size - offset)), offset)
            with concurrent.futures.ThreadPoolExecutor(self.cpus) as pool:
                list(pool.map(fill, range(0, self.size, piece)))
        self._source = path
        self.report.say(f"   {self.size} random bytes made in {time.monotonic() - start:.1f} s")
        return path

    def check_same(self, what, path, wanted, size):
        differs = compare(path, wanted, size, self.cpus)
        self.report.check(what, differs is None, "" if differs is None else f"differs at {differs}")

    def smi_memory(self, gpu, mount):
        """Used, total and free bytes as nvidia-smi has them; beside the stand-in, as the daemon has."""
        if not self.smi:
            stats = mount.stats(gpu)
            total, free = stats["total_bytes"], stats["free_bytes"]
            return {"used": total - free, "total": total, "free": free}
        text = self.run([self.smi, "-i", gpu, "--query-gpu=memory.used,memory.total,memory.free",
                         "--format=csv,noheader,nounits"]).stdout
        used, total, free = (int(word) * MIB for word in text.split(","))
        return {"used": used, "total": total, "free": free}

    def settles(self, condition, seconds=5):
        """Whether the condition becomes true soon: memory is freed a moment after the last close."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def rounds(usual):
    """How often a comparison by turns is repeated."""
    return int(os.environ.get("GPUMEM_GPU_ROUNDS") or usual)


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def rate(size, seconds):
    value = size / seconds
    return f"{value / 1e12:.2f} TB/s" if value >= 1e12 else f"{value / 1e9:.1f} GB/s"


def read_at(file, length, offset):
    read = os.pread(file.fileno(), length, offset)
    while len(read) < length:
        more = os.pread(file.fileno(), length - len(read), offset + len(read))
        if not more:
            break
        read += more
    return read


def compare(path, source, size, workers, stamps=()):
    """The first differing offset of path and source's beginning, as it looks with stamps (offset,
    bytes) put over it; None when they are equal. Wants exactly size bytes."""
    piece = 8 * MIB
    with open(path, "rb", buffering=0) as got, open(source, "rb", buffering=0) as wanted:
        if os.fstat(got.fileno()).st_size != size:
            return os.fstat(got.fileno()).st_size

        def differs(offset):
            length = min(piece, size - offset)
            expected = read_at(wanted, length, offset)
            here = [(at - offset, text) for at, text in stamps if offset <= at < offset + length]
            if here:
                expected = bytearray(expected)
            for at, text in here:
                expected[at:at + len(text)] = text
            read = read_at(got, length, offset)
            if read == expected:
                return None
            return offset + next((i for i, (a, b) in enumerate(zip(read, expected)) if a != b), len(read))

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            found = [at for at in pool.map(differs, range(0, size, piece)) if at is not None]
    return min(found, default=None)


def copy_range(source, target, size, offset=0):
    """copy_file_range(2) until size bytes are copied: seconds."""
    start = time.monotonic()
    done = 0
    while done < size:
        n = os.copy_file_range(source, target, size - done, done, offset + done)
        if n == 0:
            raise Failure(f"copy_file_range ended after {done} of {size} bytes")
        done += n
    return time.monotonic() - start
