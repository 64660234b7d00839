/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/range.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

static struct range *ranges;
static atomic_uint count; /* changed under the mapping lock */
static unsigned room;

unsigned range_count(void)
{
	return atomic_load_explicit(&count, memory_order_relaxed);
}

struct range *range_at(unsigned i)
{
	return &ranges[i];
}

bool range_is_direct_of(const struct slot_identity *identity)
{
	for (unsigned i = 0; i < count; i++)
		if (!ranges[i].cached && slot_same(&ranges[i].of->identity, identity))
			return true;
	return false;
}

int range_reserve(unsigned n)
{
	if (count + n <= room)
		return 0;
	unsigned wanted = 2 * (count + n);
	struct range *more = realloc(ranges, wanted * sizeof(*more));
	if (!more)
		return -ENOMEM;
	ranges = more;
	room = wanted;
	return 0;
}

void mapping_free(struct mapping *mapping)
{
	if (mapping->storing != mapping->file)
		gpumem_close(mapping->storing);
	if (!mapping->stuck)
		gpumem_close(mapping->file);
	free(mapping);
}

void range_add(const struct range *range)
{
	range->of->ranges++;
	ranges[count++] = *range;
}

void range_split(const char *address)
{
	for (unsigned i = 0; i < count; i++) {
		struct range *range = &ranges[i];
		if (address <= range->start || address >= range->start + range->bytes)
			continue;
		struct range rest = *range;
		range->bytes = (size_t)(address - range->start);
		rest.start += range->bytes;
		rest.offset += range->bytes;
		rest.bytes -= range->bytes;
		range_add(&rest);
		return;
	}
}

void range_remove(unsigned i)
{
	struct mapping *mapping = ranges[i].of;

	ranges[i] = ranges[--count];
	if (--mapping->ranges == 0)
		mapping_free(mapping);
}
