# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Bad input on a real machine, and the unit and mount tests there."""

import errno
import os
import re
import subprocess
import time

from harness import MIB, Failure

REFUSED_MOUNT_SECONDS = 30
MOUNT_KILLS = "60" # by each of the mount tests that kill: on a GPU each takes a third of a second


def refused_mount(machine, what, wanted, mountpoint, options):
    """The launcher, as a user calls it: status 1 and a message that names the mistake."""
    result = machine.run([machine.build / "gpumemfs", mountpoint, "-o", f"backend=cuda{options}"],
                         check=False, timeout=REFUSED_MOUNT_SECONDS)
    said = result.stderr.strip()
    machine.report.check(f"{what}: refused, and it says why", result.returncode == 1 and wanted in said,
                         " / ".join(said.splitlines()))


def refused_call(machine, what, wanted, call):
    try:
        call()
        got = "no error"
    except OSError as error:
        got = errno.errorcode[error.errno]
    machine.report.check(f"{what}: {wanted}", got == wanted, got)


def bad_calls(machine, mount):
    gpu, file = mount.gpu(), mount.gpu() / "kept"
    attribute = "user.gpumem.page_size"
    os.setxattr(file, attribute, b"64K")
    refused_call(machine, "a corrupt attribute", "EINVAL", lambda: os.setxattr(file, attribute, b"\xff\0 64K"))
    machine.report.check("the attribute keeps its value", os.getxattr(file, attribute) == b"64K")
    refused_call(machine, "a name of 256 bytes", "ENAMETOOLONG", lambda: (gpu / ("n" * 256)).touch())
    with open(file, "r+b", buffering=0) as opened:
        past = 2**63 - 4096
        refused_call(machine, "a write past the largest file", "EFBIG",
                     lambda: os.pwrite(opened.fileno(), b"data", past))


def point_bad_input(machine):
    report = machine.report
    empty = machine.scratch / "empty"
    empty.mkdir()
    refused_mount(machine, "gpus=9", "9", empty, ",gpus=9")
    refused_mount(machine, "a missing directory", "no such directory", machine.scratch / "missing", "")
    empty.rmdir()
    content = os.urandom(3 * MIB + 1)
    with machine.mount("gpus=0") as mount:
        file = mount.gpu() / "kept"
        file.write_bytes(content)
        refused_mount(machine, "a second mount on the same place", str(mount.path), mount.path, "")
        bad_calls(machine, mount)
        report.check("nothing already stored is lost", file.read_bytes() == content)
    full_at_start(machine, content)


def take_all(machine):
    """A process that has all memory of GPU 0 until its input ends."""
    holder = subprocess.Popen([machine.build / "gpu" / "raw", "hold", "0"], env=machine.env, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    held = holder.stdout.readline().strip()
    if not held:
        raise Failure("raw hold: " + holder.communicate()[1].strip())
    machine.report.say(f"   another process holds {int(held) // MIB} MiB of GPU 0")
    return holder


def full_at_start(machine, content):
    if machine.standin:
        machine.report.absent("a GPU that is full at start", "a stand-in GPU's memory belongs to one process")
        return
    holder = take_all(machine)
    try:
        with machine.mount("gpus=0") as mount:
            machine.report.check("a GPU that is full at start: it mounts", (mount.gpu() / ".").is_dir())
            file = mount.gpu() / "file"
            refused_call(machine, "a write to the full GPU", "ENOSPC", lambda: file.write_bytes(content))
            refused_call(machine, "once more", "ENOSPC", lambda: file.write_bytes(content))
            holder.communicate(timeout=60)
            file.write_bytes(content)
            machine.report.check("the same mount works when the others are gone", file.read_bytes() == content)
            lines = [line for line in mount.log_text().splitlines() if "memory" in line.lower()]
            machine.report.note("\n".join(["the daemon said:"] + (lines[:8] or ["nothing of it"])))
    finally:
        if holder.poll() is None:
            holder.kill()
            holder.communicate()


def run_unit(machine, program, env, label):
    start = time.monotonic()
    try:
        result = machine.run([program], check=False, timeout=100, env=env, cwd=machine.scratch)
    except Failure as failure:
        return label, program.name, False, 0, str(failure), time.monotonic() - start
    found = re.search(r"^\d+%: Checks: (\d+), .*$", result.stdout, re.M)
    wrong = [line for line in result.stdout.splitlines() if re.search(r":[FE]:", line)]
    text = found[0] if found else (result.stdout + result.stderr).strip()[-200:]
    skipped = result.returncode == 77  # the bundle lacks a file that the test compares
    return (label, program.name, None if skipped else result.returncode == 0, int(found[1]) if found else 0,
            " / ".join([text] + wrong[:4]), time.monotonic() - start)


def report_units(machine, label, results):
    for _, name, _, _, text, _ in [r for r in results if r[2] is None]:
        machine.report.absent(f"{label}: {name}", text)
    results = [r for r in results if r[2] is not None]
    bad = [r for r in results if not r[2]]
    for _, name, _, _, text, _ in bad:
        machine.report.check(f"{label}: {name}", False, text)
    machine.report.check(f"unit tests, {label}", results and not bad,
                         f"{len(results) - len(bad)} of {len(results)} programs, {sum(r[3] for r in results)} checks")


def point_units(machine):
    root = machine.tests.parent
    programs = sorted(p for p in (machine.build / "tests" / "unit").glob("test_*") if os.access(p, os.X_OK) and p.suffix == "")
    plain = dict(machine.env, CK_TIMEOUT_MULTIPLIER="15", GPUMEM_SRCDIR=str(root))
    standin = dict(plain, LD_LIBRARY_PATH=f"{machine.build}/driver:{machine.build}/lib")
    selftest = [p for p in [machine.build / "driver" / "selftest"] if p.exists()]
    results = machine.together([lambda p=program: run_unit(machine, p, standin, "stand-in") for program in programs + selftest])
    report_units(machine, "on the stand-in driver", results)
    if machine.standin:
        machine.report.absent("unit tests of the CUDA provider on the real driver", "this run is on the stand-in")
        return
    cuda = [p for p in programs if p.name.startswith("test_cuda") or p.name == "test_backend"]
    with machine.mount("gpus=0") as mount: # keeps the driver awake between them
        mount.warm()
        results = [run_unit(machine, program, plain, "real") for program in cuda]
    for _, name, _, _, text, seconds in results:
        machine.report.say(f"   {name} on the real driver, {seconds:.1f} s: {text}")
    report_units(machine, "of the CUDA provider on the real driver", results)


def mount_run(machine, arguments, folder, limit):
    """tests/mount/run: its results by name, with the reasons, and its closing line."""
    path = str(machine.tests / "gpu" / "tools")
    env = {"GPUMEM_KILLS": MOUNT_KILLS, **os.environ, "PATH": os.environ["PATH"] + ":" + path,
           **{k: v for k, v in machine.env.items() if k == "VK_DRIVER_FILES"}}
    backend = "standin" if machine.standin else "cuda"
    result = machine.run([machine.tests / "mount" / "run", "--build", machine.build, "--backend", backend,
                          "--work", machine.scratch / folder, *arguments], check=False, timeout=limit, env=env)
    lines = re.findall(r"^(ok|skip|FAIL) +(\S+) \(([\d.]+) s\)(?:: (.*))?$", result.stdout, re.M)
    closing = (re.findall(r"^\d+ passed, .*$", result.stdout, re.M) or [result.stderr.strip()[-200:] or "no closing line"])[-1]
    return {name: (verdict, reason) for verdict, name, _, reason in lines}, closing


def point_mounts(machine):
    report = machine.report
    results, closing = mount_run(machine, ["-j", min(machine.cpus, 12), "--timeout", 120], "mounts", 420)
    report.note(closing)
    # Parallel tests share the GPU's free memory, and some tests check the free memory: repeat failed tests alone.
    # A test that hung stays failed.
    failed = [name for name, (verdict, reason) in results.items()
              if verdict == "FAIL" and "still running" not in reason]
    if failed:
        report.note("once more, one at a time: " + " ".join(failed))
        again, closing = mount_run(machine, ["-j", 1, "--timeout", 90, "-k", f"^({'|'.join(failed)})$"], "again", 100)
        report.note(closing)
        results.update(again)
    for name, (verdict, reason) in results.items():
        if verdict == "FAIL":
            report.check(f"mount test {name}", False, reason)
    verdicts = [verdict for verdict, _ in results.values()]
    report.check("mount tests against the " + ("stand-in" if machine.standin else "real driver"),
                 "FAIL" not in verdicts and "ok" in verdicts,
                 f"{verdicts.count('ok')} passed, {verdicts.count('FAIL')} failed, {verdicts.count('skip')} skipped")
    skipped = [f"{name}: {reason}" for name, (verdict, reason) in results.items() if verdict == "skip"]
    if skipped:
        report.note("\n".join(["skipped:"] + skipped))
