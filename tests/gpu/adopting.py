# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Memory of other allocators as files: the time of gpumem_share, and of the way from the path to a pointer in another
process, beside the driver's own export and import; timelines; and the mount tests."""

from harness import Mount
from pointers import guarded, helper, timed
from sets import TENSORS, sets
from suites import mount_run

ROUNDS = 21
# Title, allocations (0: one of cudaMalloc), MiB of each, and the most that sharing and the way to a pointer may take, in
# microseconds; None: so many times the driver's own.
CASES = (("1 GiB in one allocation", 1, 1024, (500, 300)), ("1 GiB in 52 allocations of 20 MiB", 52, 20, None),
         ("16 GiB in 820 allocations of 20 MiB", 820, 20, None), ("1 GiB of cudaMalloc", 0, 1024, (500, 323)))
OF_THE_DRIVERS = 1.2
# GiB, and the setting of torch's allocator: it has tensors below 1 MiB in allocations of 2 MiB, and others of 20 MiB.
SETS = ((16, "expandable_segments:True"), (20, "expandable_segments:True"), (20, "expandable_segments:False"))
TOLD_MOST = 10_000
BATCHES, HOP_MOST, WAKE_MOST = 51, 6, 60  # microseconds


def sharing(machine, folder, title, pieces, mib, most):
    rounds = 3 if machine.standin else ROUNDS
    found = helper(machine, "adopted", folder, pieces, 2 if machine.standin else mib, rounds, timeout=60)
    driver, own = found["export"] + found["import"], found["share"] + found["pointer"]
    ok = found["share"] <= most[0] and found["pointer"] <= most[1] if most else own <= OF_THE_DRIVERS * driver
    timed(machine, title, ok and found["told"] <= TOLD_MOST,
          f"share {found['share']:.0f} us (p90 {found['share_p90']:.0f}), path to pointer {found['pointer']:.0f} us "
          f"(p90 {found['pointer_p90']:.0f}); the driver's own export {found['export']:.0f} us and import "
          f"{found['import']:.0f} us: together {own / driver:.2f} times the driver's; a consumer is "
          f"told of the end after {found['told']:.0f} us (p90 {found['told_p90']:.0f})")


def hops(machine, folder, words, title):
    found = helper(machine, "hops", folder, words, 3 if machine.standin else BATCHES, timeout=60)
    timed(machine, title, found["hop"] <= HOP_MOST and found["wake"] <= WAKE_MOST,
          f"a hop between streams of two processes {found['hop']:.2f} us (p90 {found['hop_p90']:.2f}); from a stream's "
          f"signal, launched by the same thread, to a waiting thread {found['wake']:.1f} us (p90 {found['wake_p90']:.1f})")


def mount_test(machine, title, name):
    results, closing = mount_run(machine, ["-k", f"^{name}$"], name, 100)
    machine.report.check(title, all(verdict == "ok" for verdict, _ in results.values()), closing)


def point_adopted(machine):
    with Mount(machine, backend="cuda") as mount:
        for title, pieces, mib, most in CASES:
            guarded(machine, title, lambda case=(title, pieces, mib, most): sharing(machine, mount.path / "gpu0", *case))
        for title, words in (("timelines on the GPU", "gpu0"), ("timelines in host/", "host")):
            guarded(machine, title, lambda title=title, words=words: hops(
                machine, mount.path / "gpu0", mount.path / words, title))
        for number, (gib, allocator) in enumerate(SETS):
            title = f"{TENSORS} tensors of {gib} GiB in torch, {allocator}"
            folder = mount.path / "gpu0" / f"set{number}"
            folder.mkdir()
            guarded(machine, title, lambda title=title, folder=folder, set=(gib << 30, allocator): sets(
                machine, folder, title, *set))
    for title, name in (("the mount test of gpumem_share", "prog_client_adopted"),
                        ("the mount test of memory of cudaMalloc", "prog_client_malloc"),
                        ("the mount test of timelines", "prog_client_timeline")):
        guarded(machine, title, lambda title=title, name=name: mount_test(machine, title, name))
