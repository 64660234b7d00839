# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Loads of models through the link of a set of versions."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from gpumem.run import _mounts, _versions

from .support import PACKAGE  # noqa: F401


class LoadsOfVersions(unittest.TestCase):
    """A double of transformers' from_pretrained, whose path leads through the link of a set."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for version in "12":
            os.mkdir(self.path(version))
            Path(self.path(version), "file").write_text(version)
        os.symlink("1", self.path("current"))
        patch = mock.patch.object(_mounts, "device_at", lambda path: path and "host")
        patch.start()
        self.addCleanup(patch.stop)
        self.seen = []

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def model(self, fails=()):
        fails, seen = list(fails), self.seen

        class Model:
            @classmethod
            def from_pretrained(cls, pretrained_model_name_or_path, *words, **options):
                seen.append(pretrained_model_name_or_path)
                if fails:
                    fails.pop()()
                return cls, words, options
        _versions.change_loads(Model)
        return Model

    def test_the_link_is_resolved(self):
        model = self.model()
        self.assertEqual(model.from_pretrained(self.path("current"), 1, two=2), (model, (1,), {"two": 2}))
        model.from_pretrained(pretrained_model_name_or_path=self.path("current"))
        self.assertEqual(self.seen, [os.path.realpath(self.path("1"))] * 2)

    def test_other_names_stay(self):
        model = self.model()
        for name in ("org/model", self.path("2"), self.path("nowhere")):
            model.from_pretrained(name)
        self.assertEqual(self.seen, ["org/model", self.path("2"), self.path("nowhere")])

    def test_a_version_that_was_removed(self):
        def exchanged():
            os.unlink(self.path("current"))
            os.symlink("2", self.path("current"))
            raise OSError("no file named model.safetensors")

        def broken():
            raise OSError("no config")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.model([exchanged]).from_pretrained(self.path("current"))
        self.assertEqual([os.path.basename(path) for path in self.seen], ["1", "2"])
        self.assertIn("begins again", said.getvalue())
        with self.assertRaisesRegex(OSError, "no config"):
            self.model([broken]).from_pretrained(self.path("current"))
