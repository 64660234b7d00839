# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Numbers in paths: "gpu{rank}/weights"."""

from __future__ import annotations

import re

_PLACEHOLDER = re.compile(r"\{(\w*)\}")


def fill(path: str, **numbers: int) -> str:
    """The path with each {name} replaced by its number. ValueError: another name, which may be mistyped."""
    def number(found: re.Match[str]) -> str:
        if found[1] not in numbers:
            known = " and ".join(f"{{{name}}}" for name in numbers)
            raise ValueError(f"{path}: {found[0]} stands for no number, only {known}")
        return str(numbers[found[1]])
    return _PLACEHOLDER.sub(number, path)
