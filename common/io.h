/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies between memory and files. Transfers repeat system calls which a signal interrupts, or
 * which move fewer bytes than asked for; each gives 0 or -errno, and adds to *bytes_done the bytes
 * moved, also before an error. */
#ifndef COMMON_IO_H
#define COMMON_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads bytes at the offset, fewer only at the end of the file. */
int io_read_at(int fd, void *to, uint64_t bytes, uint64_t offset, uint64_t *bytes_done);

/* Writes all bytes at the offset; -ENOSPC if the file takes no more. bytes_done may be NULL. */
int io_write_at(int fd, const void *from, uint64_t bytes, uint64_t offset, uint64_t *bytes_done);

/* Copies bytes by copy_file_range(2), fewer only at the end of the file. */
int io_copy_at(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t bytes,
	       uint64_t *bytes_done);

/* What read(2) would give: the bytes moved, or the error if there are none. */
static inline ssize_t io_count(int rc, uint64_t bytes_done)
{
	return bytes_done ? (ssize_t)bytes_done : rc;
}

/* Copies the extended attributes of the wanted names from one open file to another, as far as the
 * other file's filesystem supports them. */
void io_copy_xattrs(int from, int to, bool (*is_wanted)(const char *name));

#endif
