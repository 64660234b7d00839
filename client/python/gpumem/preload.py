# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""python3 -m gpumem.preload: prints the preload library's name for LD_PRELOAD; see libgpumem-preload(7)."""

from ._native import packaged


def path() -> str:
    """The library's path in the wheel, or else its name, which the loader searches."""
    return packaged("libgpumem-preload.so")


if __name__ == "__main__":
    print(path())
