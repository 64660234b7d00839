# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Timeline, over a library that has timelines of one process."""

from __future__ import annotations

import ctypes
import errno
import gc
import types

from .support import FAKE, Case, fake, gpumem, set_fake


def last_stream():
    return ctypes.c_ulonglong.in_dll(FAKE, "fake_stream").value


class Timelines(Case):
    def tearDown(self):
        set_fake("fake_timelines_ended", 0)
        gc.collect()
        self.assertEqual(fake("fake_timelines_open"), 0)

    def test_values(self):
        with gpumem.Timeline.create(self.host / "t", 3) as timeline, gpumem.Timeline.open(self.host / "t") as other:
            timeline.signal_host(5, number=2)
            self.assertEqual([other.value(number) for number in range(3)], [0, 0, 5])
            other.wait_host(5, number=2)
            with self.assertRaises(TimeoutError):
                other.wait_host(6, number=2, timeout=0.5)
            with self.assertRaises(OSError) as caught:
                timeline.signal_host(1, number=3)
            self.assertEqual(caught.exception.errno, errno.EINVAL)

    def test_streams(self):
        with gpumem.Timeline.create(self.host / "t") as timeline:
            for stream, number in ((None, 0), (77, 77), (types.SimpleNamespace(cuda_stream=78), 78),
                                   (types.SimpleNamespace(ptr=79), 79)):
                timeline.signal(1, stream=stream)
                self.assertEqual(last_stream(), number)
            timeline.wait(2, stream=80)
            self.assertEqual(last_stream(), 80)
            self.assertEqual(timeline.value(), 1)

    def test_the_end_of_the_creator(self):
        with gpumem.Timeline.create(self.host / "t") as timeline:
            timeline.check()
            set_fake("fake_timelines_ended", 1)
            for call in (timeline.check, lambda: timeline.wait_host(9)):
                with self.assertRaises(OSError) as caught:
                    call()
                self.assertEqual(caught.exception.errno, errno.EOWNERDEAD)

    def test_closed(self):
        timeline = gpumem.Timeline.create(self.host / "t")
        timeline.close()
        timeline.close()
        with self.assertRaises(ValueError):
            timeline.value()
        with self.assertRaises(OSError):
            gpumem.Timeline.create(self.host / "t", 0)
        with self.assertRaises(FileNotFoundError):
            gpumem.Timeline.open(self.host / "t")
