# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Safe points, and the function that a full GPU calls."""

from __future__ import annotations

import unittest
from unittest import mock

from .support import Case, fake, gpumem, set_fake


class Pressure(Case):
    def test_a_safe_point_waits(self):
        set_fake("fake_parked", 2)
        self.assertIs(gpumem.safe_point(wait=False), True)
        self.assertEqual(fake("fake_parked"), 1)
        self.assertIs(gpumem.safe_point(), False)
        self.assertEqual(fake("fake_parked"), 0)
        self.assertIs(gpumem.safe_point(wait=False), False)

    def test_a_function_is_called_at_safe_points(self):
        calls = []
        with self.assertRaisesRegex(TypeError, "not 3"):
            gpumem.on_pressure(3)
        gpumem.on_pressure(lambda wanted, device: calls.append((wanted, device)))
        self.addCleanup(gpumem.on_pressure, None)
        self.assertEqual(calls, [])
        gpumem.safe_point()
        self.assertEqual(calls, [(4096, 1)])
        gpumem.on_pressure(None)
        gpumem.safe_point()
        self.assertEqual(len(calls), 1)

    def test_a_thread_may_still_call_the_function_before(self):
        self.addCleanup(gpumem.on_pressure, None)
        for _ in range(3):
            gpumem.on_pressure(lambda _wanted, _device: None)
        self.assertEqual(fake("fake_callbacks"), 1)

    def test_an_exception_of_the_function(self):
        def raises(_wanted, _device):
            raise ValueError("of the function")

        gpumem.on_pressure(raises)
        self.addCleanup(gpumem.on_pressure, None)
        with mock.patch("sys.unraisablehook") as said:
            gpumem.safe_point()
        self.assertIs(said.call_args[0][0].exc_type, ValueError)


if __name__ == "__main__":
    unittest.main()
