#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""scripts/licences.py <PATHS: checks that each file has an SPDX head or is covered by REUSE.toml, and that each pattern
of REUSE.toml matches a file. Texts of licences and empty files need no head (https://reuse.software/spec-3.3)."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LICENCE = "Apache-2.0 OR MIT"
# REUSE-IgnoreStart
HEAD = [re.compile(rb"SPDX-License-Identifier: ([\w.+() -]*[\w.+)])"),
        re.compile(rb"SPDX-FileCopyrightText: ([^\n]*?) *(?:-->|\*/)?(?:\n|$)")]
# REUSE-IgnoreEnd


def expression(pattern):
    """The regular expression of a pattern of REUSE.toml: * matches no slash, ** matches slashes too."""
    parts = re.split(r"(\*+)", pattern)
    return re.compile("".join({"*": "[^/]*", "**": ".*"}.get(part) or re.escape(part) for part in parts))


def annotations(text):
    """The annotations of a REUSE.toml: pattern, licence and copyright of each path."""
    found = []
    for table in tomllib.loads(text)["annotations"]:
        paths = table["path"]
        found += [(path, table["SPDX-License-Identifier"], table["SPDX-FileCopyrightText"])
                  for path in ([paths] if isinstance(paths, str) else paths)]
    return found


def needs_head(path, content):
    return bool(content) and not path.startswith("LICENSES/")


def licence_of(path, content, annotated):
    """Licence and copyright of a file: from its head, else from the last annotation that matches. None without both."""
    found = [head.search(content) for head in HEAD]
    if all(found):
        return tuple(match[1].decode() for match in found)
    for pattern, *licence in reversed(annotated):
        if expression(pattern).fullmatch(path):
            return tuple(licence)
    return None


def check(paths):
    annotated = annotations((ROOT / "REUSE.toml").read_text(encoding="utf-8"))
    faults = []
    for path in paths:
        content = (ROOT / path).read_bytes()
        licence = needs_head(path, content) and licence_of(path, content, annotated)
        if licence is None:
            faults.append(f"{path}: no SPDX head, and no pattern in REUSE.toml")
        elif licence and licence[0] != LICENCE:
            faults.append(f"{path}: the licence is '{licence[0]}', not '{LICENCE}'")
    faults += [f"REUSE.toml: no file matches {pattern}" for pattern, *_ in annotated if not any(ROOT.glob(pattern))]
    return faults


if __name__ == "__main__":
    errors = check(sys.stdin.read().splitlines())
    print("\n".join(errors), end="\n" if errors else "")
    sys.exit(bool(errors))
