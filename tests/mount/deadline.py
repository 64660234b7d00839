#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Deadlines of tests: how long a test may take on a machine that does nothing else. On a busy machine a deadline moves.

deadline.py SECONDS COMMAND... is timeout(1) with such a deadline: status 124 if the command has not ended by then.

While a test waits, STEP seconds of wall-clock time count as STEP divided by the load: the threads on the whole machine
that run or wait for a processor, for each processor that this process may use, but at least 1. So six busy loops on two
processors make a deadline three times as long as an idle machine. Time of a processor would not do: a deadlock uses
none. CEILING bounds the sum, so that tests which never sleep end as well.

The threads are counted by /proc/loadavg, which every kernel has, at each step: what counts is the load while the test
waits. Pressure (/proc/pressure/cpu) tells that some thread waits, not how many: with tests side by side its value is
near 100 % on an idle machine too. /proc/schedstat would add up the waits, but is an option of the kernel. A loop that
measures its own share of a processor would itself be load, and short loops run at once even on a busy machine."""

import os
import signal
import subprocess
import sys
import time

CEILING = 10
STEP = 0.2
# How long programs may take to end after SIGTERM.
END_SECONDS = 10


def load():
    """The threads other than the calling one that run or wait for a processor, for each processor."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            threads = int(file.read().split()[3].split("/")[0]) - 1
    except (OSError, ValueError, IndexError):
        return 1
    return threads / len(os.sched_getaffinity(0))


class Deadline:
    """Begins now. now and load are replaced by tests."""

    def __init__(self, seconds, now=time.monotonic, load=load):
        self.seconds, self.now, self.load = seconds, now, load
        self.begin = self.last = now()
        self.left = seconds

    def passed(self):
        """To be called every STEP or so: the time since the last call counts by the load of this moment."""
        now = self.now()
        self.left -= (now - self.last) / max(1, self.load())
        self.last = now
        return self.left <= 0 or now - self.begin >= self.seconds * CEILING

    def __str__(self):
        """How long the wait was."""
        stretched = f", stretched to {self.last - self.begin:.0f} s by other load"
        return f"{self.seconds:g} s{stretched if self.last - self.begin >= self.seconds * 1.1 else ''}"

    def until(self, condition, step=0.01):
        """Waits until the condition is true: False after the deadline."""
        while not condition():
            if self.passed():
                return False
            time.sleep(step)
        return True

    def of(self, call):
        """The value of call(timeout=seconds), a method of subprocess.Popen: subprocess.TimeoutExpired after the
        deadline."""
        while True:
            try:
                return call(timeout=STEP)
            except subprocess.TimeoutExpired:
                if self.passed():
                    raise


def end_group(process):
    """Ends a process that leads a group, and its group: SIGTERM first, on which programs say where they were."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            Deadline(END_SECONDS).of(process.wait)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def main():
    deadline = Deadline(float(sys.argv[1]))
    # libcheck has deadlines of its own, which cannot move while it waits.
    environment = dict(os.environ, CK_TIMEOUT_MULTIPLIER=str(CEILING))
    process = subprocess.Popen(sys.argv[2:], env=environment, start_new_session=True)
    ended = lambda number, _: (end_group(process), os._exit(128 + number))
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, ended)
    try:
        status = deadline.of(process.wait)
    except subprocess.TimeoutExpired:
        end_group(process)
        print(f"ended after {deadline}", file=sys.stderr, flush=True)
        return 124
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
