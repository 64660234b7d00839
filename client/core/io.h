/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Transfers that repeat system calls which a signal interrupts, or which move fewer bytes than
 * asked for. */
#ifndef CLIENT_CORE_IO_H
#define CLIENT_CORE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads bytes at the offset. Gives fewer bytes only at the end of the file; or -errno. */
ssize_t client_io_read_at(int fd, void *to, size_t bytes, uint64_t offset);

/* Writes all bytes at the offset: 0 or -errno; -ENOSPC if the file takes no more. */
int client_io_write_at(int fd, const void *from, size_t bytes, uint64_t offset);

/* Copies bytes by copy_file_range(2). Gives fewer bytes at the end of the file, or if an error came
 * after some bytes; -errno for an error before. */
ssize_t client_io_copy_range(int from, uint64_t from_offset, int to, uint64_t to_offset,
			     uint64_t bytes);

#endif
