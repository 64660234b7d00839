/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory for large transfers, and reads and writes that repeat short system calls. */
#ifndef CLIENT_CLI_CORE_BUFFER_H
#define CLIENT_CLI_CORE_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Allocates page-aligned memory, in huge pages if possible, because the kernel pins the pages of a
 * request one by one. NULL: no memory. */
void *buffer_new(size_t bytes);
void buffer_free(void *buffer, size_t bytes);

/* Reads bytes at the offset, in as many calls as necessary. Gives fewer bytes only at the end of
 * the file; or -errno. */
ssize_t buffer_read(int fd, void *to, size_t bytes, uint64_t offset);
/* Writes all bytes: 0 or -errno. */
int buffer_write(int fd, const void *from, size_t bytes, uint64_t offset);

/* The number of threads that fill a PCIe link, as far as there are processors. */
unsigned buffer_threads(void);

#endif
