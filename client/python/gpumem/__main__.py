# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""python3 -m gpumem ARGUMENTS: executes the command gpumem, of the wheel or else in PATH, or gpumem.broadcast."""

import os
import sys

from ._native import packaged


def main() -> None:
    if sys.argv[1:2] == ["broadcast"]:
        # In this interpreter: the command would take the python3 in PATH, which may not have the module.
        from .broadcast.__main__ import main as broadcast
        sys.exit(broadcast(sys.argv[2:]))
    try:
        os.execvp(packaged("bin/gpumem"), ["gpumem", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"cannot execute gpumem: {error.strerror}")


if __name__ == "__main__":
    main()
