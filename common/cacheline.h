/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Cache lines: a counter written all the time must share no line with data for other threads. */
#ifndef COMMON_CACHELINE_H
#define COMMON_CACHELINE_H

#include <stdlib.h>
#include <string.h>

/* Two lines, because the processor prefetches pairs. */
#define CACHELINE_ALIGN 128

/* Zeroed memory on lines of its own, for free(); NULL: no memory. */
static inline void *cacheline_calloc(size_t bytes)
{
	size_t whole = (bytes + CACHELINE_ALIGN - 1) / CACHELINE_ALIGN * CACHELINE_ALIGN;
	void *memory = aligned_alloc(CACHELINE_ALIGN, whole);

	return memory ? memset(memory, 0, whole) : NULL;
}

#endif
