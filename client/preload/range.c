/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/range.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Files that wait for slots_refuse: more are refused at once. */
#define REFUSED_MAX 16

static pthread_mutex_t range_lock = PTHREAD_MUTEX_INITIALIZER; /* of all in this file */
static struct range *mapped_ranges;
static atomic_uint n_ranges; /* also read without the lock */
static unsigned range_capacity;
static struct mapping *ended_mappings;
static struct slot_identity refused_files[REFUSED_MAX];
static unsigned n_refused;

unsigned range_count(void)
{
	return atomic_load_explicit(&n_ranges, memory_order_relaxed);
}

struct range *range_at(unsigned i)
{
	return &mapped_ranges[i];
}

bool range_is_direct_of(const struct slot_identity *identity)
{
	for (unsigned i = 0; i < n_ranges; i++)
		if (!mapped_ranges[i].cached &&
		    slot_same(&mapped_ranges[i].mapping->identity, identity))
			return true;
	return false;
}

int range_reserve(unsigned n)
{
	if (n_ranges + n <= range_capacity)
		return 0;
	unsigned new_capacity = 2 * (n_ranges + n);
	struct range *new_ranges = realloc(mapped_ranges, new_capacity * sizeof(*new_ranges));
	if (!new_ranges)
		return -ENOMEM;
	mapped_ranges = new_ranges;
	range_capacity = new_capacity;
	return 0;
}

void ranges_lock(void)
{
	pthread_mutex_lock(&range_lock);
}

static void mapping_free(struct mapping *mapping)
{
	if (mapping->storing != mapping->file)
		gpumem_close(mapping->storing);
	if (!mapping->stuck)
		gpumem_close(mapping->file);
	free(mapping);
}

void ranges_unlock(void)
{
	struct slot_identity files[REFUSED_MAX];
	struct mapping *mapping = ended_mappings, *next;
	unsigned n = n_refused;
	int error = errno;

	memcpy(files, refused_files, n * sizeof(*files));
	ended_mappings = NULL;
	n_refused = 0;
	pthread_mutex_unlock(&range_lock);
	while (n)
		slots_refuse(&files[--n]);
	for (; mapping; mapping = next) {
		next = mapping->next;
		mapping_free(mapping);
	}
	errno = error;
}

void ranges_forked(void)
{
	pthread_mutex_init(&range_lock, NULL);
}

void mapping_end(struct mapping *mapping)
{
	mapping->next = ended_mappings;
	ended_mappings = mapping;
}

void range_refuse_file(const struct slot_identity *identity)
{
	for (unsigned i = 0; i < n_refused; i++)
		if (slot_same(&refused_files[i], identity))
			return;
	if (n_refused < REFUSED_MAX)
		refused_files[n_refused++] = *identity;
	else
		slots_refuse(identity);
}

void range_add(const struct range *range)
{
	range->mapping->ranges++;
	mapped_ranges[n_ranges++] = *range;
}

void range_split(const char *address)
{
	for (unsigned i = 0; i < n_ranges; i++) {
		struct range *range = &mapped_ranges[i];
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
	struct mapping *mapping = mapped_ranges[i].mapping;

	mapped_ranges[i] = mapped_ranges[--n_ranges];
	if (--mapping->ranges == 0)
		mapping_end(mapping);
}
