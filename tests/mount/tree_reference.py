# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""xxh64-tree as gpumem(1) describes it, and XXH64 as its specification does: slow, and independent of the
code under test."""

import struct

BLOCK, STRINGS, PIECE = 65536, 32, 16
MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579,
                      2870177450012600261)


def rotate(value, bits):
    return (value << bits | value >> (64 - bits)) & MASK


def one_round(accumulator, word):
    return rotate((accumulator + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data):
    at = len(data) // 32 * 32
    if at:
        a, b, c, d = (P1 + P2) & MASK, P2, 0, -P1 & MASK
        words = struct.unpack(f"<{at // 8}Q", data[:at])
        for i in range(0, len(words), 4):
            a, b = one_round(a, words[i]), one_round(b, words[i + 1])
            c, d = one_round(c, words[i + 2]), one_round(d, words[i + 3])
        total = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)
        for accumulator in (a, b, c, d):
            total = ((total ^ one_round(0, accumulator)) * P1 + P4) & MASK
    else:
        total = P5
    total = (total + len(data)) & MASK
    while len(data) - at >= 8:
        total = (rotate(total ^ one_round(0, int.from_bytes(data[at:at + 8], "little")), 27) * P1 + P4) & MASK
        at += 8
    if len(data) - at >= 4:
        total = (rotate(total ^ int.from_bytes(data[at:at + 4], "little") * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        total = rotate(total ^ byte * P5 & MASK, 11) * P1 & MASK
    total = (total ^ total >> 33) * P2 & MASK
    total = (total ^ total >> 29) * P3 & MASK
    return total ^ total >> 32


def block_sum(block):
    pieces = [block[at:at + PIECE] for at in range(0, BLOCK, PIECE)]
    strings = (b"".join(pieces[i::STRINGS]) for i in range(STRINGS))
    return xxh64(struct.pack(f"<{STRINGS}Q", *map(xxh64, strings)))


def tree_sum(data):
    blocks = (data[at:at + BLOCK].ljust(BLOCK, b"\0") for at in range(0, len(data), BLOCK))
    sums = [block_sum(block) for block in blocks]
    return f"{xxh64(struct.pack(f'<{len(sums) + 1}Q', *sums, len(data))):016x}"
