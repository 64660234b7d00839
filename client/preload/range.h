/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of ranges. Callers hold the mapping lock. */
#ifndef CLIENT_PRELOAD_RANGE_H
#define CLIENT_PRELOAD_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/preload/slot.h"

/* What one call of mmap brought: a lease, and on a GPU the import behind the mapping. */
struct mapping {
	gpumem *file;
	struct slot_identity identity;
	bool on_gpu;
	bool
	    stuck; /* its place in the library's mapping is somebody else's: never to be unmapped */
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
/* Whether any range is of that file. */
bool range_is_of(const struct slot_identity *identity);
/* Room for n more, so that range_add and range_split cannot fail: 0 or -ENOMEM. */
int range_reserve(unsigned n);
void range_add(const struct range *range);
/* Makes address a border between ranges, where one lies across it. */
void range_split(const char *address);
/* Takes the i-th out; the last one takes its number. A mapping without ranges ends. */
void range_remove(unsigned i);

static inline bool range_overlaps(const struct range *range, const char *start, size_t bytes)
{
	return range->start < start + bytes && start < range->start + range->bytes;
}

#endif
