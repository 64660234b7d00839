# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The memory that each mode gives, and the warning about a large unexpected copy."""

from __future__ import annotations

import re
import unittest
import warnings
from pathlib import Path

from .support import PACKAGE, ROOT, Case, gpumem
from gpumem import _modes

LARGE = (64 << 20) + 1


class Modes(Case):
    def setUp(self) -> None:
        super().setUp()
        _modes._warned = False
        self.addCleanup(setattr, _modes, "_warned", False)

    def large(self, folder: str = "gpu0", name: str = "file", size: int = LARGE) -> Path:
        path = self.file(folder, b"", name)
        with path.open("r+b") as file:
            file.write((2).to_bytes(8, "little") + b"{}")
            file.truncate(size)
        return path

    def said(self, function, *arguments):
        """The texts of the warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(*arguments).close()
        self.assertEqual({one.category for one in caught} - {gpumem.CopyWarning}, set())
        self.assertEqual([one.filename for one in caught], [__file__] * len(caught))
        return [str(one.message) for one in caught]

    def test_a_large_private_copy_warns_once(self):
        path = self.large()
        said = self.said(gpumem.open, path)
        self.assertEqual(len(said), 1)
        for word in (str(path), str(LARGE), "'r+'", "user.gpumem.share=trusted", "'copy'"):
            self.assertIn(word, said[0])
        self.assertEqual(self.said(gpumem.open, path), [])
        self.assertEqual(self.said(gpumem.open, self.large(name="other")), [])

    def test_of_safetensors(self):
        with self.assertWarnsRegex(gpumem.CopyWarning, "private copy"), self.assertRaises(ValueError):
            gpumem.safetensors(self.large())  # and its header does not cover the data

    def test_what_does_not_warn(self):
        self.assertEqual(self.said(gpumem.open, self.large(), "r+"), [])
        self.assertEqual(self.said(gpumem.open, self.large(), "copy"), [])
        self.assertEqual(self.said(gpumem.open, self.large(size=LARGE - 1)), [])
        self.assertEqual(self.said(gpumem.open, self.large(name="trusted")), [])
        self.assertEqual(self.said(gpumem.open, self.large("host")), [])

    def test_a_warning_that_is_an_error(self):
        """The error is raised each time, and the file is closed."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                with self.assertRaises(gpumem.CopyWarning):
                    gpumem.open(self.large())

    def test_copy_is_private(self):
        with gpumem.open(self.file(), "copy") as buffer:
            self.assertEqual((buffer.private, buffer.read_only), (True, False))
        for shared in (self.file("host"), self.file(name="trusted")):
            with self.assertRaisesRegex(ValueError, "get the memory of the file itself, not a copy"):
                gpumem.open(shared, "copy")

    def test_examples_of_the_documents_view_and_do_not_copy(self):
        texts = [gpumem.__doc__, (PACKAGE / "README.md").read_text()]
        if (ROOT / "README.md").exists():
            texts.append((ROOT / "README.md").read_text())
        calls = [call for text in texts for call in re.findall(r"gpumem\.(?:open|safetensors)\([^()]+\)", text)]
        self.assertGreater(len(calls), 4)
        self.assertEqual([call for call in calls if '"r+"' not in call], [])


if __name__ == "__main__":
    unittest.main()
