/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Cache lines: what threads write all the time lies on none that others read. */
#ifndef COMMON_CACHELINE_H
#define COMMON_CACHELINE_H

#include <stdlib.h>
#include <string.h>

/* Two lines: they are prefetched in pairs. */
#define LINES_ALIGN 128

/* Zeroed memory on lines of its own; NULL without memory; for free(). */
static inline void *lines_calloc(size_t bytes)
{
	size_t whole = (bytes + LINES_ALIGN - 1) / LINES_ALIGN * LINES_ALIGN;
	void *memory = aligned_alloc(LINES_ALIGN, whole);

	return memory ? memset(memory, 0, whole) : NULL;
}

#endif
