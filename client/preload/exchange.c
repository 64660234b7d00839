/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client/lib/file.h"
#include "client/preload/core/access.h"
#include "client/preload/core/file_stats.h"
#include "common/cleanup.h"

/* A mapping imports the whole GPU file, at 10 us per MiB: not worthwhile for less than this part of
 * the file. */
#define PART_MIN 4

static gpumem *lease_take(int fd, bool stores, bool writes, enum stats_left *reason)
{
	bool writable = false;
	gpumem *file = access_lease(fd, stores ? ACCESS_STORES : ACCESS_LOADS, &writable, reason);

	if (!file || writable || !writes)
		return file;
	*reason = LEFT_RIGHTS;
	gpumem_close(file);
	return NULL;
}

struct mapping *exchange_lease(int fd, const struct range *range, enum stats_left *reason)
{
	bool writes = range->protection & PROT_WRITE, stores = range->shared && writes;
	struct mapping *mapping = calloc(1, sizeof(*mapping));

	*reason = LEFT_FAILED;
	if (mapping && identity_get(fd, &mapping->identity))
		mapping->file = lease_take(fd, stores, writes, reason);
	if (mapping && mapping->file) {
		mapping->storing = stores ? mapping->file : NULL;
		return mapping;
	}
	free(mapping);
	return NULL;
}

gpumem *exchange_lease_to_store(int fd)
{
	enum stats_left reason;

	return lease_take(fd, true, true, &reason);
}

bool exchange_reaches(struct mapping *mapping, const struct range *range, enum stats_left *reason)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	*reason = LEFT_FAILED;
	if (gpumem_get_info(mapping->file, &info) < 0)
		return false;
	mapping->on_gpu = info.kind == GPUMEM_FILE_DEVICE || info.kind == GPUMEM_FILE_VULKAN;
	*reason = LEFT_END_OF_FILE;
	return range->offset + range->bytes <= range_round_up(info.size);
}

bool exchange_pays(const struct mapping *mapping, const struct range *range,
		   enum stats_left *reason)
{
	*reason = LEFT_WINDOW;
	return !mapping->on_gpu || range->bytes >= mapping->file->layout.size / PART_MIN ||
	       range_is_direct_of(&mapping->identity);
}

int exchange_kernel(unsigned i, enum place_by method)
{
	const struct range *range = range_at(i);
	struct slot_identity identity = range->mapping->identity;

	if (!range->cached || range->torn) {
		int rc = place_kernel(range, method);

		if (rc < 0)
			return rc;
		file_stats_add(range->mapping->file->fd, MANNER_PAGE_CACHE, range->bytes);
	}
	range_remove(i);
	range_refuse_file(&identity);
	return 0;
}

int exchange_file_kernel(const struct slot_identity *identity)
{
	int rc = 0;

	for (unsigned i = range_count(); rc == 0 && i-- > 0;)
		if (slot_same(&range_at(i)->mapping->identity, identity))
			rc = exchange_kernel(i, PLACE_PRIVATE_TABLE);
	return rc;
}

void exchange_direct(unsigned i)
{
	struct range *range = range_at(i);
	void *base;

	if (gpumem_map_host(range->mapping->file, &base, NULL) == 0 && place_direct(range) == 0) {
		range->cached = range->torn = false;
		file_stats_add(range->mapping->file->fd, MANNER_IN_PLACE, range->bytes);
		return;
	}
	struct slot_identity identity = range->mapping->identity;

	range->torn = true;
	exchange_file_kernel(&identity);
}

void exchange_all_direct(uint64_t device, uint64_t inode)
{
	for (unsigned i = range_count(); i-- > 0;) {
		const struct slot_identity *identity = &range_at(i)->mapping->identity;

		if (range_at(i)->cached && identity->device == device &&
		    (!inode || identity->inode == inode))
			exchange_direct(i);
		if (i > range_count())
			i = range_count();
	}
}
