# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""python3 -m gpumem ARGUMENTS: executes the command gpumem, of the wheel or else in PATH."""

import os
import sys

from ._native import packaged


def main() -> None:
    try:
        os.execvp(packaged("bin/gpumem"), ["gpumem", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"cannot execute gpumem: {error.strerror}")


if __name__ == "__main__":
    main()
