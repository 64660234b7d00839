#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""make_model.py FILE MIB: a safetensors file of about so many MiB, to try the other examples with."""

import json
import math
import struct
import sys

COLUMNS, LAYERS, MIB = 1024, 4, 1 << 20


def make(path, mib):
    """A quarter is "embedding", of float32, where row r begins with sin(r) and cos(r); the rest layers of float16."""
    rows = max(mib * MIB // 4 // (COLUMNS * 4), 1)
    layer_rows = max(mib * MIB * 3 // 4 // LAYERS // (COLUMNS * 2), 1)
    header, at = {}, 0
    shapes = [("embedding", "F32", rows, 4)] + [(f"layers.{n}.weight", "F16", layer_rows, 2) for n in range(LAYERS)]
    for name, dtype, n, item in shapes:
        header[name] = {"dtype": dtype, "shape": [n, COLUMNS], "data_offsets": [at, at + n * COLUMNS * item]}
        at += n * COLUMNS * item
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        tail = bytes(4 * (COLUMNS - 2))
        for row in range(rows):
            file.write(struct.pack("<ff", math.sin(row), math.cos(row)) + tail)
        weights = struct.pack(f"<{COLUMNS}e", *(math.cos(column) for column in range(COLUMNS)))
        for _ in range(LAYERS * layer_rows):
            file.write(weights)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit(__doc__)
    make(sys.argv[1], int(sys.argv[2]))
