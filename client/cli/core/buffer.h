/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory and threads for large transfers. */
#ifndef CLIENT_CLI_CORE_BUFFER_H
#define CLIENT_CLI_CORE_BUFFER_H

#include <stddef.h>

/* Allocates page-aligned memory, in huge pages if possible, because the kernel pins the pages of a
 * request one by one. NULL: no memory. */
void *buffer_new(size_t bytes);
void buffer_free(void *buffer, size_t bytes);

/* The number of threads that fill a PCIe link, as far as there are processors. */
unsigned buffer_threads(void);

#endif
