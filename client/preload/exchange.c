/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/exchange.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib/file.h"
#include "client/preload/core/access.h"
#include "client/preload/core/file_stats.h"
#include "common/cleanup.h"

/* A mapping imports the whole GPU file, at 10 us per MiB: not worthwhile for less than this part of
 * the file. */
#define PART_MIN 4

static pthread_mutex_t asking_lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct slot_identity asking;				/* inode 0: no thread asks */

static void asking_set(const struct slot_identity *identity)
{
	scoped_lock(&asking_lock);
	asking = *identity;
}

bool exchange_asks_to_store(uint64_t device, uint64_t inode)
{
	scoped_lock(&asking_lock);
	return inode &&
	       slot_same(&asking, &(struct slot_identity){.device = device, .inode = inode});
}

static gpumem *lease_take(struct mapping *mapping, int fd, const struct range *range,
			  enum stats_left *why)
{
	const struct slot_identity none = {0};
	bool writable = false;

	mapping->stores = range->shared && range->protection & PROT_WRITE;
	if (mapping->stores)
		asking_set(&mapping->identity);
	gpumem *file =
	    access_lease(fd, mapping->stores ? ACCESS_STORES : ACCESS_LOADS, &writable, why);
	if (mapping->stores)
		asking_set(&none);
	if (!file || writable || !(range->protection & PROT_WRITE))
		return file;
	*why = LEFT_RIGHTS;
	gpumem_close(file);
	return NULL;
}

static bool mapping_covers(struct mapping *mapping, const struct range *range, enum stats_left *why)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	*why = LEFT_FAILED;
	if (gpumem_get_info(mapping->file, &info) < 0)
		return false;
	mapping->on_gpu = info.kind == GPUMEM_FILE_DEVICE || info.kind == GPUMEM_FILE_VULKAN;
	*why = LEFT_END_OF_FILE;
	if (range->offset + range->bytes > range_round_up(info.size))
		return false;
	*why = LEFT_WINDOW;
	return !mapping->on_gpu || range->bytes >= info.size / PART_MIN;
}

struct mapping *exchange_lease(int fd, const struct range *range, enum stats_left *why)
{
	struct mapping *made = calloc(1, sizeof(*made));

	*why = LEFT_FAILED;
	if (made && identity_get(fd, &made->identity))
		made->file = lease_take(made, fd, range, why);
	if (made && made->file && mapping_covers(made, range, why))
		return made;
	if (made)
		gpumem_close(made->file);
	free(made);
	return NULL;
}

int exchange_kernel(unsigned i, enum place_by by)
{
	const struct range *range = range_at(i);
	struct slot_identity identity = range->of->identity;

	if (!range->cached) {
		int rc = place_kernel(range, by);

		if (rc < 0)
			return rc;
		file_stats_add(range->of->file->fd, MANNER_PAGE_CACHE, range->bytes);
	}
	range_remove(i);
	slots_refuse(&identity);
	return 0;
}

void exchange_direct(unsigned i)
{
	struct range *range = range_at(i);
	void *base;

	range->cached = false;
	if (gpumem_map_host(range->of->file, &base, NULL) == 0 && place_direct(range) == 0)
		file_stats_add(range->of->file->fd, MANNER_IN_PLACE, range->bytes);
	else
		exchange_kernel(i, PLACE_PRIVATE_TABLE);
}

void exchange_all_direct(uint64_t device, uint64_t inode)
{
	for (unsigned i = range_count(); i-- > 0;) {
		const struct slot_identity *identity = &range_at(i)->of->identity;

		if (range_at(i)->cached && identity->device == device &&
		    (!inode || identity->inode == inode))
			exchange_direct(i);
	}
}

int exchange_writable(unsigned i)
{
	struct range writable = *range_at(i);
	enum stats_left why;
	void *base;

	writable.protection |= PROT_WRITE;
	writable.of = exchange_lease(writable.of->file->fd, &writable, &why);
	if (!writable.of)
		return exchange_kernel(i, PLACE_PRIVATE_TABLE);
	writable.protection = range_at(i)->protection;
	if (gpumem_map_host(writable.of->file, &base, NULL) < 0 || place_direct(&writable) < 0) {
		gpumem_close(writable.of->file);
		free(writable.of);
		return exchange_kernel(i, PLACE_PRIVATE_TABLE);
	}
	range_remove(i);
	range_add(&writable);
	return 0;
}
