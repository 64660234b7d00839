# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""What the command gpumem run wants, and its messages."""

from __future__ import annotations

import os
import sys

_mode, _, _rest = os.environ.get("GPUMEM_RUN", "auto").partition(",")
MODE = _mode if _mode in ("auto", "view", "copy") else "auto"
STATS = _rest == "stats"


def say(text: str) -> None:
    """One line on stderr. A program whose stderr is closed must not notice."""
    try:
        sys.stderr.write(f"gpumem run: {text if text.isprintable() else ascii(text)}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass
