#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""frame_consumer.py FILE SOCKET [FRAMES]: uses frames of frame_producer (frames.h) in place, in the memory of
FILE, and checks every pixel: by PyTorch on the GPU, by numpy or Python in system memory.

Ends with the producer, or after FRAMES. Exit status 1: a frame was torn, or the producer was killed."""

import socket
import struct
import sys
import time

import gpumem
from view_model import take

NOTICE = struct.Struct("=QQ")  # sequence, offset
HEADER = struct.Struct("=QQII")  # sequence, time, width, height
PIXELS_AT = 4096


class ProducerDied(Exception):
    pass


def receive(producer, given_back=b""):
    """Returns a slot to the producer, and waits for the next notice: (bytes, sequence, offset)."""
    try:
        if given_back:
            producer.send(given_back)
        notice = producer.recv(NOTICE.size)
    except ConnectionError:
        notice = b""
    if not notice:
        raise ProducerDied
    return (notice, *NOTICE.unpack(notice))


def frames(path, address):
    """(sequence, pixels) for each frame until the producer is done. The pixels are valid until the next iteration, which
    gives the slot back: to keep the pixels, copy them before."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as producer, gpumem.open(path, "r+") as buffer:
        producer.connect(address)
        notice, announced, offset = receive(producer)
        while announced:
            header = buffer.view("uint8", HEADER.size, offset).memory
            sequence, _, width, height = HEADER.unpack(header)
            if sequence != announced:
                raise ValueError(f"frame {announced} was announced, and {sequence} is there")
            yield sequence, take(buffer.view("uint8", (height, width), offset + PIXELS_AT))
            notice, announced, offset = receive(producer, given_back=notice)


def is_whole(pixels, grey):
    """Whether every pixel is of this grey. Returns when the GPU, too, has read the pixels."""
    if isinstance(pixels, memoryview):
        return bytes(pixels).count(grey) == pixels.nbytes
    return bool((pixels == grey).all())


def main(path, address, wanted=0):
    seen, torn, first, sequence, died, start = 0, 0, 0, 0, "", time.monotonic()
    try:
        for sequence, pixels in frames(path, address):
            first = first or sequence
            seen += 1
            torn += not is_whole(pixels, sequence % 256)
            if seen == wanted:
                break
    except ProducerDied:
        died = f"; the producer died after frame {sequence}"
    seconds = time.monotonic() - start
    missed = sequence - first + 1 - seen if seen else 0
    print(f"{seen} frames, {missed} missed, {torn} torn, {seen / seconds:.0f} a second{died}")
    return 1 if torn or died else 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
