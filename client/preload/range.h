/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of ranges. Callers hold the mapping lock. */
#ifndef CLIENT_PRELOAD_RANGE_H
#define CLIENT_PRELOAD_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/preload/slot.h"

/* The result of one call of mmap: a lease, and for a GPU file the import of its memory. */
struct mapping {
	gpumem *file;
	struct slot_identity identity;
	bool on_gpu;
	bool stuck; /* another mapping took its place in the library's mapping: never unmap */
	unsigned ranges;
};

struct range {
	char *start;
	size_t bytes; /* whole pages */
	uint64_t offset;
	struct mapping *of;
	int protection;
	bool shared, may_write;
};

unsigned range_count(void);
struct range *range_at(unsigned i);
/* Whether a range is of that file. */
bool range_is_of(const struct slot_identity *identity);
/* Makes room for n more ranges, so that range_add and range_split cannot fail: 0 or -ENOMEM. */
int range_reserve(unsigned n);
void range_add(const struct range *range);
/* Splits the range that crosses the address, if there is such a range. */
void range_split(const char *address);
/* Removes the i-th range; the last range takes its number. A mapping ends with its last range. */
void range_remove(unsigned i);

static inline bool range_overlaps(const struct range *range, const char *start, size_t bytes)
{
	return range->start < start + bytes && start < range->start + range->bytes;
}

#endif
