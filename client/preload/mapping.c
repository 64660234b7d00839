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
#include "client/preload/place.h"
#include "common/cleanup.h"

/* A mapping imports the whole GPU file, at 10 us per MiB: not worthwhile for less than this part of
 * the file. */
#define PART_MIN 4

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of the table; taken before the slots' locks */
static atomic_uint any;	       /* range_count, for callers without lock */

static bool wanted = true;

void mapping_start(void)
{
	const char *text = secure_getenv("GPUMEM_PRELOAD_MAP");

	wanted = !text || strcmp(text, "0") != 0;
}

static void range_count_update(void)
{
	atomic_store(&any, range_count());
}

static size_t page_round_up(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
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
	if (atomic_load_explicit(&any, memory_order_relaxed) == 0 || !address_is_aligned(address) ||
	    own_inside || !own_process())
		return false;
	scoped_lock(&lock);
	return ranges_touch(address, page_round_up(bytes));
}

/* Under lock. Removes the ranges between two borders. */
static void ranges_forget(const char *start, size_t bytes)
{
	for (unsigned i = range_count(); i-- > 0;)
		if (range_overlaps(range_at(i), start, bytes))
			range_remove(i);
	range_count_update();
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
	return !range_is_of(&identity);
}

/* Loads through a BAR are slow: a private mapping stays the kernel's, and copies from the mapping
 * to a GPU are served (source.h). */
static bool request_is_slow(const struct mapping_request *request, enum access_kind kind,
			    enum stats_left *why)
{
	struct slot_identity identity;

	if (kind != ACCESS_GPU || request->flags & MAP_SHARED ||
	    !identity_get(request->fd, &identity))
		return false;
	*why = LEFT_SLOW;
	scoped_lock(&lock);
	return !range_is_of(&identity);
}

/* Whether the mapping may be the file's memory itself. */
static bool request_is_direct(const struct mapping_request *request, int mode, enum stats_left *why)
{
	if (!request_can_be_direct(request, mode, why) || request_is_for_kernel(request, why))
		return false;
	enum access_kind kind = access_kind(request->fd, why);
	return kind != ACCESS_NONE && !request_is_slow(request, kind, why);
}

static struct mapping *mapping_new(int fd, const struct range *range, enum stats_left *why)
{
	enum access_times times = range->shared && range->may_write ? ACCESS_STORES : ACCESS_TIMED;
	struct mapping *made = calloc(1, sizeof(*made));
	bool writable = false;

	*why = LEFT_FAILED;
	if (made && identity_get(fd, &made->identity))
		made->file = access_lease(fd, times, &writable, why);
	if (made && made->file && (writable || !(range->protection & PROT_WRITE)))
		return made;
	if (made && made->file)
		*why = LEFT_RIGHTS;
	if (made)
		gpumem_close(made->file);
	free(made);
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
	if (range->offset + range->bytes > page_round_up(info.size))
		return false;
	*why = LEFT_WINDOW;
	return !mapping->on_gpu || range->bytes >= info.size / PART_MIN;
}

/* Gives the range its addresses. -EAGAIN: the kernel should try. */
static int range_map(struct range *range, const struct mapping_request *request,
		     enum stats_left *why)
{
	void *base;

	if (!mapping_covers(range->of, range, why))
		return -EAGAIN;
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
	range_count_update();
	return 0;
}

/* Under lock. */
static bool file_map(int fd, bool may_write, const struct mapping_request *request, void **address,
		     enum stats_left *why)
{
	struct range range = {
	    .bytes = page_round_up(request->bytes),
	    .offset = (uint64_t)request->offset,
	    .protection = request->protection,
	    .shared = request->flags & MAP_SHARED,
	    .may_write = may_write,
	};

	range.of = mapping_new(fd, &range, why);
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

bool mapping_map(const struct mapping_request *request, void **address)
{
	enum stats_left why;
	int error = errno;

	if (!wanted || request->flags & MAP_ANONYMOUS || !slot_of(request->fd))
		return false;
	INSIDE();
	int mode = fcntl(request->fd, F_GETFL);
	bool served = request_is_direct(request, mode, &why);
	if (served) {
		scoped_lock(&lock);
		served =
		    file_map(request->fd, (mode & O_ACCMODE) == O_RDWR, request, address, &why);
	}
	if (!served)
		stats_leave(why);
	if (!served || *address != MAP_FAILED)
		errno = error;
	return served;
}

void mapping_was_left(const struct mapping_request *request, void *address)
{
	struct slot_identity identity;
	int error = errno;

	if (own_inside || address == MAP_FAILED)
		return;
	bool file = !(request->flags & MAP_ANONYMOUS) && slot_of(request->fd);
	INSIDE();
	if (request->flags & MAP_FIXED && atomic_load(&any) && own_process()) {
		scoped_lock(&lock);
		if (ranges_split(address, page_round_up(request->bytes)) == 0)
			ranges_forget(address, page_round_up(request->bytes));
	}
	if (file && identity_get(request->fd, &identity)) {
		slots_refuse(&identity);
		file_stats_add(request->fd, MANNER_PAGE_CACHE, request->bytes);
		source_add(request, &identity, address);
	}
	errno = error;
}

/* --- calls on mappings */

int mapping_unmap(void *address, size_t bytes)
{
	size_t whole = page_round_up(bytes);

	INSIDE();
	scoped_lock(&lock);
	if (ranges_split(address, whole) < 0) {
		errno = ENOMEM;
		return -1;
	}
	int rc = real.munmap(address, bytes);
	if (rc == 0) {
		int error = errno;
		ranges_forget(address, whole);
		errno = error;
	}
	return rc;
}

/* Under lock. Turns the range into the kernel's mapping of the file. */
static int range_yield(unsigned i, enum place_by by)
{
	struct slot_identity identity = range_at(i)->of->identity;
	int rc = place_kernel(range_at(i), by);

	if (rc < 0)
		return rc;
	file_stats_add(range_at(i)->of->file->fd, MANNER_PAGE_CACHE, range_at(i)->bytes);
	range_remove(i);
	range_count_update();
	slots_refuse(&identity);
	return 0;
}

/* Under lock. */
static int ranges_yield(const char *start, size_t bytes)
{
	int rc = 0;

	for (unsigned i = range_count(); rc == 0 && i-- > 0;)
		if (range_overlaps(range_at(i), start, bytes))
			rc = range_yield(i, PLACE_PRIVATE_TABLE);
	return rc;
}

/* A private mapping that becomes writable needs copy-on-write by the kernel. */
static int range_protect(unsigned i, int protection)
{
	const struct range *range = range_at(i);

	if (!range->shared && protection & PROT_WRITE)
		return range_yield(i, PLACE_PRIVATE_TABLE);
	if (protection & PROT_EXEC)
		return range_yield(i, PLACE_PRIVATE_TABLE);
	return protection & PROT_WRITE && !range->may_write ? -EACCES : 0;
}

int mapping_protect(void *address, size_t bytes, int protection)
{
	size_t whole = page_round_up(bytes);

	INSIDE();
	scoped_lock(&lock);
	int rc = ranges_split(address, whole);
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
		if (range_overlaps(range_at(i), address, page_round_up(bytes)))
			gpumem_flush(range_at(i)->of->file);
	if (valid && ranges_cover(address, page_round_up(bytes)))
		return 0;
	return real.msync(address, bytes, flags);
}

/* --- mremap */

static const struct range *range_with(const char *start, size_t bytes)
{
	for (unsigned i = 0; i < range_count(); i++) {
		const struct range *range = range_at(i);
		if (start >= range->start && start + bytes <= range->start + range->bytes)
			return range;
	}
	return NULL;
}

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
	size_t old = page_round_up(remap->old_bytes);
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
	size_t kept = page_round_up(remap->new_bytes), old = page_round_up(remap->old_bytes);

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
	size_t bytes = page_round_up(remap->old_bytes ? remap->old_bytes : 1);

	if (ranges_split(remap->old, bytes) == 0)
		ranges_yield(remap->old, bytes);
	if (remap->flags & MREMAP_FIXED) {
		size_t there = page_round_up(remap->new_bytes);
		if (ranges_split(remap->target, there) == 0)
			ranges_yield(remap->target, there);
	}
	return false;
}

bool mapping_remap(const struct mapping_remap *remap, void **address)
{
	bool plain = !(remap->flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) && remap->new_bytes &&
		     remap->old_bytes && address_is_aligned(remap->old);
	size_t old = page_round_up(remap->old_bytes);

	INSIDE();
	scoped_lock(&lock);
	const struct range *range = range_with(remap->old, old);
	if (!plain || !range)
		return remap_leave(remap);
	if (!(remap->flags & MREMAP_FIXED) && page_round_up(remap->new_bytes) <= old)
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

	if (atomic_load(&any) == 0)
		return false;
	scoped_lock(&lock);
	for (unsigned i = range_count(); i-- > 0;) {
		if (slot_same(&range_at(i)->of->identity, identity))
			had = range_yield(i, PLACE_PRIVATE_TABLE) == 0 || had;
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
		if (range->of->on_gpu && range->shared && range->may_write)
			range_yield(i, PLACE_PRIVATE_TABLE);
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
			range_yield(i, PLACE_IN_CHILD);
		else
			gpumem_get_info(range_at(i)->of->file, &info);
	}
}
