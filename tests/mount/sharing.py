# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The sharing protocol, packet by packet."""

import fcntl
import os
import socket
import struct
from pathlib import Path

TOKEN_SECONDS, TOKEN_BYTES = 10, 40
IOC_TOKEN = 2 << 30 | TOKEN_BYTES << 16 | ord("g") << 8 | 0x47
HEADER, MAGIC, VERSION = struct.Struct("=IHHII"), 0x4d465047, 1
LEASE, LAYOUT, ERROR = 1, 16, 18


def token_of(path):
    with open(path, "r+b") as file:
        return fcntl.ioctl(file, IOC_TOKEN, bytes(TOKEN_BYTES))[8:]


def connect(mount):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(Path(mount) / ".gpumem" / "socket"))
    return connection


def lease(connection, token):
    """The type of the answer, and of a layout the file's size."""
    connection.send(HEADER.pack(MAGIC, VERSION, LEASE, HEADER.size + len(token), 1) + token)
    answer, fds, _, _ = socket.recv_fds(connection, 4096, 128)
    for fd in fds:
        os.close(fd)
    kind = HEADER.unpack_from(answer)[2]
    return kind, struct.unpack_from("=Q", answer, HEADER.size + 8)[0] if kind == LAYOUT else None
