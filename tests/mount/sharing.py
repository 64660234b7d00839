# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""The sharing protocol, packet by packet."""

import fcntl
import itertools
import os
import socket
import struct
from pathlib import Path

KEY_BYTES = 32
IOC_LEASE = 1 << 30 | 8 + KEY_BYTES << 16 | ord("g") << 8 | 0x48
IOC_LEASE_TIMED = IOC_LEASE + 7
IOC_LEASE_LOADS = IOC_LEASE + 8
COPY_BYTES = 40 + KEY_BYTES
IOC_COPY = 1 << 30 | COPY_BYTES << 16 | ord("g") << 8 | 0x4a
HEADER, MAGIC, VERSION = struct.Struct("=IHHII"), 0x4d465047, 2
RELEASE, HELLO, LISTEN, NOTICED, LAYOUT, NOTICE = 3, 4, 5, 6, 16, 20
LISTEN_RECALL, NOTICE_RECALL, LAYOUT_PRIVATE, LAYOUT_DELEGATED = 4, 4, 2, 8
NUMBERS = itertools.count(1)


def connect(mount):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(Path(mount) / ".gpumem" / "socket"))
    return connection


def receive_all(connection):
    """The next packet, the number of the request, and the packet's descriptors."""
    packet, fds, _, _ = socket.recv_fds(connection, 4096, 128)
    return packet, HEADER.unpack_from(packet)[4], fds


def receive(connection):
    """The next packet, without its descriptors, and the number of the request."""
    packet, number, fds = receive_all(connection)
    for fd in fds:
        os.close(fd)
    return packet, number


def key_of(connection):
    connection.send(HEADER.pack(MAGIC, VERSION, HELLO, HEADER.size, next(NUMBERS)))
    return receive(connection)[0][HEADER.size:]


def ask(file, key, command=IOC_LEASE):
    """Asks for a lease of an open file: the number of the request."""
    number = next(NUMBERS)
    fcntl.ioctl(file, command, struct.pack("=II", VERSION, number) + key)
    return number


def ask_copy(file, argument):
    """GPUMEM_IOC_COPY: the number of bytes."""
    return fcntl.ioctl(file, IOC_COPY, bytearray(argument))


def answer_packet(connection, number):
    """The layout that answers the request, without its descriptors."""
    packet, answered = receive(connection)
    while answered < number:
        packet, answered = receive(connection)
    if (HEADER.unpack_from(packet)[2], answered) != (LAYOUT, number):
        raise AssertionError(f"no layout for request {number}: {packet}")
    return packet


def answer(connection, number):
    """The file's size from the layout that answers the request."""
    return struct.unpack_from("=Q", answer_packet(connection, number), HEADER.size + 8)[0]


def layout_flags(packet):
    return struct.unpack_from("=I", packet, HEADER.size + 20)[0]


def listen(connection, flags):
    """Makes the connection one for notices."""
    connection.send(HEADER.pack(MAGIC, VERSION, LISTEN, HEADER.size + 8, next(NUMBERS)) + struct.pack("=II", flags, 0))
    receive(connection)


def notice(connection):
    """The next notice: its number, what it asks for, and the inode."""
    packet, number = receive(connection)
    if HEADER.unpack_from(packet)[2] != NOTICE:
        raise AssertionError(f"no notice: {packet}")
    what, _, inode = struct.unpack_from("=IIQ", packet, HEADER.size)
    return number, what, inode


def noticed(connection, number):
    """Answers a notice."""
    connection.send(HEADER.pack(MAGIC, VERSION, NOTICED, HEADER.size + 8, number) + struct.pack("=iI", 0, 0))


def lease(file, connection, command=IOC_LEASE):
    """The size of an open file; or the OSError of the refusal."""
    return answer(connection, ask(file, key_of(connection), command))


def release(connection, layout):
    """Ends the lease of a layout that was received."""
    lease = layout[HEADER.size:HEADER.size + 8]
    connection.send(HEADER.pack(MAGIC, VERSION, RELEASE, HEADER.size + len(lease), next(NUMBERS)) + lease)
    receive(connection)


def lease_memory(file, connection, then_release=False):
    """The descriptors of the first chunks of an open file, which belong to the caller."""
    number = ask(file, key_of(connection))
    packet, answered, fds = receive_all(connection)
    if (HEADER.unpack_from(packet)[2], answered) != (LAYOUT, number):
        raise AssertionError(f"no layout for request {number}: {packet}")
    if then_release:
        release(connection, packet)
    return fds
