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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all in this file */
static struct range *ranges;
static atomic_uint count; /* also read without the lock */
static unsigned room;
static struct mapping *ended;
static struct slot_identity refused[REFUSED_MAX];
static unsigned n_refused;

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
		if (!ranges[i].cached && slot_same(&ranges[i].mapping->identity, identity))
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

void ranges_lock(void)
{
	pthread_mutex_lock(&lock);
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
	struct mapping *mapping = ended, *next;
	unsigned n = n_refused;
	int error = errno;

	memcpy(files, refused, n * sizeof(*files));
	ended = NULL;
	n_refused = 0;
	pthread_mutex_unlock(&lock);
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
	pthread_mutex_init(&lock, NULL);
}

void mapping_end(struct mapping *mapping)
{
	mapping->next = ended;
	ended = mapping;
}

void range_refuse_file(const struct slot_identity *identity)
{
	for (unsigned i = 0; i < n_refused; i++)
		if (slot_same(&refused[i], identity))
			return;
	if (n_refused < REFUSED_MAX)
		refused[n_refused++] = *identity;
	else
		slots_refuse(identity);
}

void range_add(const struct range *range)
{
	range->mapping->ranges++;
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
	struct mapping *mapping = ranges[i].mapping;

	ranges[i] = ranges[--count];
	if (--mapping->ranges == 0)
		mapping_end(mapping);
}
