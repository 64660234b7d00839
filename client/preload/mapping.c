/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/stream.h"
#include "client/lib/file.h"
#include "client/preload/copy/source.h"
#include "client/preload/core/file_stats.h"
#include "client/preload/core/own.h"
#include "client/preload/core/real.h"
#include "client/preload/exchange.h"
#include "client/preload/fill.h"
#include "client/preload/recall.h"
#include "common/cleanup.h"

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of the table; taken before the slots' locks */

/* How often a recall tries to take the lock. */
#define LOCK_POLL_US 1000

static bool wanted = true;

/* A thread that holds the lock may be waiting for the daemon, which may be waiting for this answer
 * before a lease for stores: that thread needs no answer, as it has left no such range. */
static bool recall_locks(uint64_t device, uint64_t inode)
{
	while (pthread_mutex_trylock(&lock) != 0) {
		if (exchange_asks_to_store(device, inode))
			return false;
		usleep(LOCK_POLL_US);
	}
	return true;
}

static void mapping_recall(uint64_t device, uint64_t inode)
{
	if (!recall_locks(device, inode))
		return;
	exchange_all_direct(device, inode);
	pthread_mutex_unlock(&lock);
}

void mapping_start(void)
{
	const char *text = secure_getenv("GPUMEM_PRELOAD_MAP");

	wanted = !text || strcmp(text, "0") != 0;
	recall_start(mapping_recall);
}

static bool address_is_aligned(const void *address)
{
	return (uintptr_t)address % (size_t)sysconf(_SC_PAGESIZE) == 0;
}

/* Under lock. */
static bool ranges_touch(const char *start, size_t bytes)
{
	for (unsigned i = 0; i < range_count(); i++)
		if (range_overlaps(range_at(i), start, bytes))
			return true;
	return false;
}

bool mapping_touches(const void *address, size_t bytes)
{
	/* The kernel refuses addresses that are not at a page. */
	if (range_count() == 0 || !address_is_aligned(address) || own_inside || !own_process())
		return false;
	scoped_lock(&lock);
	return ranges_touch(address, range_round_up(bytes));
}

/* Under lock. Removes the ranges between two borders. */
static void ranges_forget(const char *start, size_t bytes)
{
	for (unsigned i = range_count(); i-- > 0;)
		if (range_overlaps(range_at(i), start, bytes))
			range_remove(i);
}

/* Under lock. Splits ranges so that no range crosses either end. */
static int ranges_split(const char *start, size_t bytes)
{
	int rc = range_reserve(2);

	if (rc == 0) {
		range_split(start);
		range_split(start + bytes);
	}
	return rc;
}

/* --- mmap */

/* A small mapping of a file that has a direct mapping is made directly too: both mappings must show
 * each other's stores. */
static bool request_is_for_kernel(const struct mapping_request *request, enum stats_left *why)
{
	struct slot_identity identity;

	*why = LEFT_SMALL;
	if (!request_is_small(request) || !identity_get(request->fd, &identity))
		return false;
	scoped_lock(&lock);
	return !range_is_direct_of(&identity);
}

/* Loads through a BAR are slow: a mapping that is only read stays the kernel's, and copies from the
 * mapping to a GPU are served (source.h). */
static bool request_is_slow(const struct mapping_request *request, enum access_kind kind,
			    enum stats_left *why)
{
	struct slot_identity identity;

	if (kind != ACCESS_GPU || request->protection & PROT_WRITE ||
	    !identity_get(request->fd, &identity))
		return false;
	*why = LEFT_SLOW;
	scoped_lock(&lock);
	return !range_is_direct_of(&identity);
}

/* Whether the mapping may be the file's memory itself, at once or later. */
static enum mapping_by request_decide(const struct mapping_request *request, int mode,
				      enum stats_left *why)
{
	if (!request_can_be_direct(request, mode, why) || request_is_for_kernel(request, why))
		return MAPPING_BY_KERNEL;
	enum access_kind kind = access_kind(request->fd, why);
	if (kind == ACCESS_NONE)
		return MAPPING_BY_KERNEL;
	if (!request_is_slow(request, kind, why))
		return MAPPING_SERVED;
	return request->flags & MAP_SHARED ? MAPPING_CACHED : MAPPING_PAGES;
}

/* Gives the range its addresses. -EAGAIN: the kernel should try. */
static int range_map(struct range *range, const struct mapping_request *request,
		     enum stats_left *why)
{
	void *base;

	*why = LEFT_FAILED;
	if (gpumem_map_host(range->of->file, &base, NULL) < 0 || range_reserve(3) < 0)
		return -EAGAIN;
	range->start = place_reserve(request->address, range->bytes, request->flags);
	if (range->start == MAP_FAILED)
		return -errno;
	ranges_split(range->start, range->bytes);
	ranges_forget(range->start, range->bytes);
	if (place_direct(range) < 0) {
		/* With MAP_FIXED the reservation has already replaced the old mapping. */
		if (!(request->flags & MAP_FIXED))
			real.munmap(range->start, range->bytes);
		return -EAGAIN;
	}
	if (!range->of->on_gpu)
		gpumem_unmap_host(range->of->file);
	range_add(range);
	return 0;
}

/* Under lock. The program's own pages of the file do not show what it will store. */
static void range_prepare_to_store(const struct range *range, int fd)
{
	struct slot_identity identity;

	if (range->shared && range->protection & PROT_WRITE && identity_get(fd, &identity))
		exchange_all_direct(identity.device, identity.inode);
}

/* Under lock. */
static bool file_map(int fd, bool may_write, const struct mapping_request *request, void **address,
		     enum stats_left *why)
{
	struct range range = {
	    .bytes = range_round_up(request->bytes),
	    .offset = (uint64_t)request->offset,
	    .protection = request->protection,
	    .shared = request->flags & MAP_SHARED,
	    .may_write = may_write,
	};

	range_prepare_to_store(&range, fd);
	range.of = exchange_lease(fd, &range, why);
	if (!range.of)
		return false;
	int rc = range_map(&range, request, why);
	if (rc == 0) {
		stats_serve(SERVED_MAP, range.bytes);
		file_stats_add(fd, MANNER_IN_PLACE, range.bytes);
		*address = range.start;
		return true;
	}
	if (!range.of->stuck)
		gpumem_close(range.of->file);
	free(range.of);
	*address = MAP_FAILED;
	errno = -rc;
	return rc != -EAGAIN;
}

enum mapping_by mapping_map(const struct mapping_request *request, void **address)
{
	enum stats_left why;
	int error = errno;

	if (!wanted || request->flags & MAP_ANONYMOUS || !slot_of(request->fd))
		return MAPPING_BY_KERNEL;
	INSIDE();
	int mode = fcntl(request->fd, F_GETFL);
	enum mapping_by by = request_decide(request, mode, &why);
	if (by == MAPPING_SERVED) {
		scoped_lock(&lock);
		if (!file_map(request->fd, (mode & O_ACCMODE) == O_RDWR, request, address, &why))
			by = MAPPING_BY_KERNEL;
	}
	if (by != MAPPING_SERVED)
		stats_leave(why);
	if (by != MAPPING_SERVED || *address != MAP_FAILED)
		errno = error;
	return by;
}

/* Keeps the kernel's mapping while the file is delegated to this process. Under lock. */
static void range_cache(const struct mapping_request *request, char *address)
{
	int mode = fcntl(request->fd, F_GETFL);
	struct range range = {.start = address,
			      .bytes = range_round_up(request->bytes),
			      .offset = (uint64_t)request->offset,
			      .protection = request->protection,
			      .shared = true,
			      .may_write = (mode & O_ACCMODE) == O_RDWR,
			      .cached = true};
	enum stats_left why;

	range.of = exchange_lease(request->fd, &range, &why);
	if (!range.of)
		return;
	if (range_reserve(1) < 0) {
		gpumem_close(range.of->file);
		free(range.of);
		return;
	}
	range_add(&range);
	if (!(range.of->file->layout.flags & GPUMEM_LAYOUT_DELEGATED))
		exchange_direct(range_count() - 1);
}

void mapping_was_left(const struct mapping_request *request, enum mapping_by by, void *address)
{
	struct slot_identity identity;
	int error = errno;

	if (own_inside || address == MAP_FAILED)
		return;
	bool file = !(request->flags & MAP_ANONYMOUS) && slot_of(request->fd);
	INSIDE();
	if (request->flags & MAP_FIXED && range_count() && own_process()) {
		scoped_lock(&lock);
		if (ranges_split(address, range_round_up(request->bytes)) == 0)
			ranges_forget(address, range_round_up(request->bytes));
	}
	if (file && identity_get(request->fd, &identity)) {
		slots_refuse(&identity);
		file_stats_add(request->fd, MANNER_PAGE_CACHE, request->bytes);
		source_add(request, &identity, address, by == MAPPING_CACHED);
		if (by == MAPPING_CACHED) {
			recall_listen(request->fd, identity.device);
			scoped_lock(&lock);
			range_cache(request, address);
		}
	}
	errno = error;
}

/* --- calls on mappings */

void mapping_replace(void *address, size_t bytes)
{
	size_t whole = range_round_up(bytes);
	int error = errno;

	INSIDE();
	scoped_lock(&lock);
	if (ranges_split(address, whole) == 0)
		for (unsigned i = range_count(); i-- > 0;)
			if (range_at(i)->cached && range_overlaps(range_at(i), address, whole))
				range_remove(i);
	errno = error;
}

/* The range that has all of the bytes, or NULL. */
static const struct range *range_with(const char *start, size_t bytes)
{
	for (unsigned i = 0; i < range_count(); i++) {
		const struct range *range = range_at(i);
		if (start >= range->start && start + bytes <= range->start + range->bytes)
			return range;
	}
	return NULL;
}

int mapping_unmap(void *address, size_t bytes)
{
	size_t whole = range_round_up(bytes);

	INSIDE();
	scoped_lock(&lock);
	if (ranges_split(address, whole) < 0) {
		errno = ENOMEM;
		return -1;
	}
	const struct range *range = range_with(address, whole);

	if (range && range->cached)
		fill_undo(address, whole);
	int rc = real.munmap(address, bytes);
	if (rc == 0) {
		int error = errno;
		ranges_forget(address, whole);
		errno = error;
	}
	return rc;
}

/* Under lock. */
static int ranges_yield(const char *start, size_t bytes)
{
	int rc = 0;

	for (unsigned i = range_count(); rc == 0 && i-- > 0;)
		if (range_overlaps(range_at(i), start, bytes))
			rc = exchange_kernel(i, PLACE_PRIVATE_TABLE);
	return rc;
}

/* A private mapping that becomes writable needs copy-on-write by the kernel. */
static int range_protect(unsigned i, int protection)
{
	const struct range *range = range_at(i);

	if (!range->shared && protection & PROT_WRITE)
		return exchange_kernel(i, PLACE_PRIVATE_TABLE);
	if (protection & PROT_EXEC)
		return exchange_kernel(i, PLACE_PRIVATE_TABLE);
	if (!(protection & PROT_WRITE))
		return 0;
	if (!range->may_write)
		return -EACCES;
	return range->of->stores ? 0 : exchange_writable(i);
}

/* Under lock. All ranges of these files become direct. */
static void ranges_prepare_to_store(const char *start, size_t bytes)
{
	for (unsigned i = range_count(); i-- > 0;) {
		const struct range *range = range_at(i);

		if (!range->cached || !range_overlaps(range, start, bytes))
			continue;
		struct slot_identity identity = range->of->identity;

		exchange_all_direct(identity.device, identity.inode);
		i = range_count();
	}
}

int mapping_protect(void *address, size_t bytes, int protection)
{
	size_t whole = range_round_up(bytes);

	INSIDE();
	scoped_lock(&lock);
	int rc = ranges_split(address, whole);
	if (protection & PROT_WRITE)
		ranges_prepare_to_store(address, whole);
	for (unsigned i = range_count(); rc == 0 && i-- > 0;)
		if (range_overlaps(range_at(i), address, whole))
			rc = range_protect(i, protection);
	if (rc < 0) {
		errno = -rc;
		return -1;
	}
	rc = real.mprotect(address, bytes, protection);
	for (unsigned i = 0; rc == 0 && i < range_count(); i++)
		if (range_overlaps(range_at(i), address, whole))
			range_at(i)->protection = protection;
	return rc;
}

/* Under lock. Whether ranges cover all of the bytes. */
static bool ranges_cover(const char *start, size_t bytes)
{
	size_t found = 0;

	for (unsigned i = 0; i < range_count(); i++) {
		const struct range *range = range_at(i);
		if (!range_overlaps(range, start, bytes))
			continue;
		const char *from = range->start > start ? range->start : start;
		const char *end = range->start + range->bytes;
		found += (size_t)((end < start + bytes ? end : start + bytes) - from);
	}
	return found == bytes;
}

int mapping_sync(void *address, size_t bytes, int flags)
{
	int known = MS_ASYNC | MS_INVALIDATE | MS_SYNC;
	bool valid = !(flags & ~known) && !(flags & MS_ASYNC && flags & MS_SYNC);

	INSIDE();
	scoped_lock(&lock);
	stream_fence();
	for (unsigned i = 0; i < range_count(); i++)
		if (range_overlaps(range_at(i), address, range_round_up(bytes)))
			gpumem_flush(range_at(i)->of->file);
	if (valid && ranges_cover(address, range_round_up(bytes)))
		return 0;
	return real.msync(address, bytes, flags);
}

/* --- mremap */

/* Makes a range of the new length elsewhere, of the same memory, and removes the old range. */
static bool range_map_longer(const struct mapping_remap *remap, const struct range *range,
			     void **address)
{
	struct mapping_request request = {
	    .address = remap->flags & MREMAP_FIXED ? remap->target : NULL,
	    .bytes = remap->new_bytes,
	    .protection = range->protection,
	    .flags = (range->shared ? MAP_SHARED : MAP_PRIVATE) |
		     (remap->flags & MREMAP_FIXED ? MAP_FIXED : 0),
	    .offset = (off_t)(range->offset + (uint64_t)(remap->old - range->start)),
	};
	size_t old = range_round_up(remap->old_bytes);
	enum stats_left why;

	if (!file_map(range->of->file->fd, range->may_write, &request, address, &why)) {
		stats_leave(why);
		return false;
	}
	if (*address != MAP_FAILED && ranges_split(remap->old, old) == 0 &&
	    real.munmap(remap->old, old) == 0)
		ranges_forget(remap->old, old);
	return true;
}

static bool range_shrink(const struct mapping_remap *remap, void **address)
{
	size_t kept = range_round_up(remap->new_bytes), old = range_round_up(remap->old_bytes);

	*address = remap->old;
	if (kept == old)
		return true;
	if (ranges_split(remap->old + kept, old - kept) < 0)
		return false;
	if (real.munmap(remap->old + kept, old - kept) == 0)
		ranges_forget(remap->old + kept, old - kept);
	else
		*address = MAP_FAILED;
	return true;
}

/* Turns the ranges into the kernel's mapping, which the kernel can then move. */
static bool remap_leave(const struct mapping_remap *remap)
{
	size_t bytes = range_round_up(remap->old_bytes ? remap->old_bytes : 1);

	if (ranges_split(remap->old, bytes) == 0)
		ranges_yield(remap->old, bytes);
	if (remap->flags & MREMAP_FIXED) {
		size_t there = range_round_up(remap->new_bytes);
		if (ranges_split(remap->target, there) == 0)
			ranges_yield(remap->target, there);
	}
	return false;
}

bool mapping_remap(const struct mapping_remap *remap, void **address)
{
	bool plain = !(remap->flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) && remap->new_bytes &&
		     remap->old_bytes && address_is_aligned(remap->old);
	size_t old = range_round_up(remap->old_bytes);

	INSIDE();
	scoped_lock(&lock);
	const struct range *range = range_with(remap->old, old);
	if (!plain || !range)
		return remap_leave(remap);
	if (!(remap->flags & MREMAP_FIXED) && range_round_up(remap->new_bytes) <= old)
		return range_shrink(remap, address);
	if (!(remap->flags & MREMAP_MAYMOVE)) {
		*address = MAP_FAILED;
		errno = remap->flags & MREMAP_FIXED ? EINVAL : ENOMEM;
		return true;
	}
	if (remap->flags & MREMAP_FIXED || !range_map_longer(remap, range, address))
		return remap_leave(remap);
	return true;
}

/* --- giving way */

bool mapping_yield(const struct slot_identity *identity)
{
	bool had = false;

	if (range_count() == 0)
		return false;
	scoped_lock(&lock);
	for (unsigned i = range_count(); i-- > 0;) {
		if (slot_same(&range_at(i)->of->identity, identity))
			had = exchange_kernel(i, PLACE_PRIVATE_TABLE) == 0 || had;
	}
	return had;
}

/* Memory that parent and child both write must stay shared, and a BAR mapping belongs to the
 * parent: both use the page cache. */
void mapping_before_fork(void)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = range_count(); i-- > 0;) {
		const struct range *range = range_at(i);
		if (range->of->on_gpu && range->of->stores)
			exchange_kernel(i, PLACE_PRIVATE_TABLE);
	}
}

void mapping_after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* The child inherits system memory, and needs a lease of its own. */
void mapping_forked(void)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	pthread_mutex_init(&lock, NULL);
	for (unsigned i = range_count(); i-- > 0;) {
		if (range_at(i)->of->on_gpu)
			exchange_kernel(i, PLACE_IN_CHILD);
		else
			gpumem_get_info(range_at(i)->of->file, &info);
	}
}
