/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory for large transfers, and transfers that are whole. */
#ifndef CLIENT_CLI_CORE_BUFFER_H
#define CLIENT_CLI_CORE_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Page-aligned, in huge pages where there are any: the kernel pins a request's pages one by one.
 * NULL: no memory. */
void *buffer_new(size_t bytes);
void buffer_free(void *buffer, size_t bytes);

/* As much as there is up to bytes, in as many calls as it takes; less only at the end of the file;
 * or -errno. */
ssize_t buffer_read(int fd, void *to, size_t bytes, uint64_t offset);
/* All of it: 0 or -errno. */
int buffer_write(int fd, const void *from, size_t bytes, uint64_t offset);

/* How many threads fill a PCIe link where there are processors for it. */
unsigned buffer_threads(void);

#endif
