/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/stream/stream.h"
#include "client/lib/file.h"
#include "client/preload/copy/source.h"
#include "client/preload/core/file_stats.h"
#include "client/preload/core/fill.h"
#include "client/preload/core/own.h"
#include "client/preload/core/real.h"
#include "client/preload/exchange.h"
#include "client/preload/recall.h"
#include "common/cleanup.h"

static bool mapping_enabled = true;
static unsigned n_recalls; /* under the lock of the ranges */

static void mapping_recall(uint64_t device, uint64_t inode)
{
	RANGES_LOCKED();
	n_recalls++;
	exchange_all_direct(device, inode);
}

void mapping_start(void)
{
	const char *text = secure_getenv("GPUMEM_PRELOAD_MAP");

	mapping_enabled = !text || strcmp(text, "0") != 0;
	recall_start(mapping_recall);
}

static bool address_is_aligned(const void *address)
{
	return (uintptr_t)address % (size_t)sysconf(_SC_PAGESIZE) == 0;
}

/* Under lock. A range that touches the bytes, or NULL. */
static const struct range *range_touched(const char *start, size_t bytes)
{
	for (unsigned i = 0; i < range_count(); i++)
		if (range_overlaps(range_at(i), start, bytes))
			return range_at(i);
	return NULL;
}

bool mapping_touches(const void *address, size_t bytes)
{
	/* The kernel refuses addresses that are not at a page. */
	if (range_count() == 0 || !address_is_aligned(address) || own_inside || !own_process())
		return false;
	RANGES_LOCKED();
	return range_touched(address, range_round_up(bytes));
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
static bool request_is_for_kernel(const struct mapping_request *request, enum stats_left *reason)
{
	struct slot_identity identity;

	*reason = LEFT_SMALL;
	if (!request_is_small(request) || !identity_get(request->fd, &identity))
		return false;
	RANGES_LOCKED();
	return !range_is_direct_of(&identity);
}

/* Loads through a BAR are slow: a mapping that is only read stays the kernel's, and copies from the
 * mapping to a GPU are served (source.h). */
static bool request_is_slow(const struct mapping_request *request, enum access_kind kind,
			    enum stats_left *reason)
{
	struct slot_identity identity;

	if (kind != ACCESS_GPU || request->protection & PROT_WRITE ||
	    !identity_get(request->fd, &identity))
		return false;
	*reason = LEFT_SLOW;
	RANGES_LOCKED();
	return !range_is_direct_of(&identity);
}

/* Whether the mapping may be the file's memory itself, at once or later. */
static enum mapping_by request_decide(const struct mapping_request *request, int mode,
				      enum stats_left *reason)
{
	if (!request_can_be_direct(request, mode, reason) || request_is_for_kernel(request, reason))
		return MAPPING_BY_KERNEL;
	enum access_kind kind = access_kind(request->fd, reason);
	if (kind == ACCESS_NONE)
		return MAPPING_BY_KERNEL;
	if (!request_is_slow(request, kind, reason))
		return MAPPING_SERVED;
	return request->flags & MAP_SHARED ? MAPPING_CACHED : MAPPING_PAGES;
}

/* Gives the range its addresses. -EAGAIN: the kernel should try. Under lock. */
static int range_map(struct range *range, const struct mapping_request *request,
		     enum stats_left *reason)
{
	void *base;

	if (!exchange_reaches(range->mapping, range, reason) ||
	    !exchange_pays(range->mapping, range, reason))
		return -EAGAIN;
	*reason = LEFT_FAILED;
	if (gpumem_map_host(range->mapping->file, &base, NULL) < 0 || range_reserve(3) < 0)
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
	if (!range->mapping->on_gpu)
		gpumem_unmap_host(range->mapping->file);
	range_add(range);
	return 0;
}

static struct range range_of(const struct mapping_request *request, bool may_write)
{
	return (struct range){.bytes = range_round_up(request->bytes),
			      .offset = (uint64_t)request->offset,
			      .protection = request->protection,
			      .shared = request->flags & MAP_SHARED,
			      .may_write = may_write};
}

/* Before the program stores: pages of the file, which this process loads from, do not show that. */
static void file_end_pages(const struct slot_identity *identity)
{
	RANGES_LOCKED();
	exchange_all_direct(identity->device, identity->inode);
}

/* A lease for the range. NULL with the reason. */
static struct mapping *range_lease(int fd, const struct range *range, enum stats_left *reason)
{
	struct slot_identity identity;

	if (range->shared && range->protection & PROT_WRITE && identity_get(fd, &identity))
		file_end_pages(&identity);
	return exchange_lease(fd, range, reason);
}

/* Under lock. Takes over the range's lease. False: the kernel should map the file. */
static bool leased_map(struct range *range, const struct mapping_request *request, void **address,
		       enum stats_left *reason)
{
	int rc = range_map(range, request, reason);

	if (rc == 0) {
		stats_serve(SERVED_MAP, range->bytes);
		file_stats_add(range->mapping->file->fd, MANNER_IN_PLACE, range->bytes);
		*address = range->start;
		return true;
	}
	mapping_end(range->mapping);
	*address = MAP_FAILED;
	errno = -rc;
	return rc != -EAGAIN;
}

static bool file_map(const struct mapping_request *request, bool may_write, void **address,
		     enum stats_left *reason)
{
	struct range range = range_of(request, may_write);

	range.mapping = range_lease(request->fd, &range, reason);
	if (!range.mapping)
		return false;
	RANGES_LOCKED();
	return leased_map(&range, request, address, reason);
}

/* A lease after which the pages of the kernel's mapping show the file's bytes until a recall. NULL:
 * there is no such lease. *so_far: recalls before the lease. */
static struct mapping *pages_lease(const struct mapping_request *request, const struct range *range,
				   unsigned *so_far)
{
	struct slot_identity identity;
	enum stats_left reason;

	if (!identity_get(request->fd, &identity))
		return NULL;
	recall_listen(request->fd, identity.device);
	ranges_lock();
	*so_far = n_recalls;
	ranges_unlock();
	return exchange_lease(request->fd, range, &reason);
}

/* Under lock. With MAP_FIXED the mapping may take the place of ranges. */
static void *kernel_map(const struct mapping_request *request, int flags)
{
	size_t bytes = range_round_up(request->bytes);

	if (range_reserve(2) < 0) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	void *address = real.mmap64(request->address, request->bytes, request->protection, flags,
				    request->fd, request->offset);

	if (address != MAP_FAILED && flags & MAP_FIXED) {
		ranges_split(address, bytes);
		ranges_forget(address, bytes);
	}
	return address;
}

void *mapping_map_over(const struct mapping_request *request, int flags)
{
	INSIDE();
	RANGES_LOCKED();
	return kernel_map(request, flags);
}

/* Under lock. Counts the kernel's mapping as a range, unless its pages may be old by now. */
static void pages_add(struct range *range, unsigned so_far)
{
	enum stats_left reason;

	if (!exchange_reaches(range->mapping, range, &reason) || range_reserve(1) < 0) {
		mapping_end(range->mapping);
		return;
	}
	range->cached = true;
	range_add(range);
	if (!(range->mapping->file->layout.flags & GPUMEM_LAYOUT_DELEGATED) || n_recalls != so_far)
		exchange_direct(range_count() - 1);
}

/* Makes the kernel's mapping. The lease comes first, because the kernel drops a file's pages in
 * mmap: pages that others read before the lease may be old. */
static void *pages_map(const struct mapping_request *request, bool may_write)
{
	struct range range = range_of(request, may_write);
	unsigned so_far = 0;

	range.mapping = pages_lease(request, &range, &so_far);
	RANGES_LOCKED();
	range.start = kernel_map(request, request->flags & ~MAP_POPULATE);
	int error = errno;

	if (range.mapping && range.start != MAP_FAILED)
		pages_add(&range, so_far);
	else if (range.mapping)
		mapping_end(range.mapping);
	errno = error;
	return range.start;
}

enum mapping_by mapping_map(const struct mapping_request *request, void **address)
{
	enum stats_left reason;
	int error = errno;

	if (!mapping_enabled || request->flags & MAP_ANONYMOUS || !slot_of(request->fd))
		return MAPPING_BY_KERNEL;
	INSIDE();
	int mode = fcntl(request->fd, F_GETFL);
	bool may_write = (mode & O_ACCMODE) == O_RDWR;
	enum mapping_by maker = request_decide(request, mode, &reason);
	*address = NULL;
	if (maker == MAPPING_SERVED && !file_map(request, may_write, address, &reason)) {
		maker = MAPPING_BY_KERNEL;
		*address = NULL;
	}
	if (maker != MAPPING_SERVED)
		stats_leave(reason);
	if (maker == MAPPING_CACHED)
		*address = pages_map(request, may_write);
	if (*address != MAP_FAILED)
		errno = error;
	return maker;
}

/* Memory and the kernel's pages do not show each other's stores. */
static void file_yield_direct(const struct slot_identity *identity)
{
	RANGES_LOCKED();
	for (unsigned i = range_count(); i-- > 0;)
		if (!range_at(i)->cached && slot_same(&range_at(i)->mapping->identity, identity))
			exchange_kernel(i, PLACE_PRIVATE_TABLE);
}

void mapping_was_left(const struct mapping_request *request, enum mapping_by maker, void *address)
{
	struct slot_identity identity;
	int error = errno;

	if (own_inside || address == MAP_FAILED)
		return;
	bool file = !(request->flags & MAP_ANONYMOUS) && slot_of(request->fd);
	INSIDE();
	if (file && identity_get(request->fd, &identity)) {
		if (maker == MAPPING_BY_KERNEL && request->flags & MAP_SHARED)
			file_yield_direct(&identity);
		slots_refuse(&identity);
		file_stats_add(request->fd, MANNER_PAGE_CACHE, request->bytes);
		source_add(request, &identity, address, maker == MAPPING_CACHED);
	}
	errno = error;
}

/* --- calls on mappings */

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
	RANGES_LOCKED();
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

/* Under lock: all ranges of the files of these addresses become the kernel's. */
static int ranges_yield(const char *start, size_t bytes)
{
	const struct range *range;
	int rc = 0;

	while (rc == 0 && (range = range_touched(start, bytes))) {
		struct slot_identity identity = range->mapping->identity;

		rc = exchange_file_kernel(&identity);
	}
	return rc;
}

/* A private mapping that becomes writable needs copy-on-write by the kernel. */
static int range_protect(unsigned i, int protection)
{
	const struct range *range = range_at(i);

	if (!range->shared && protection & PROT_WRITE)
		return exchange_kernel(i, PLACE_PRIVATE_TABLE);
	return !(protection & PROT_WRITE) || range->may_write ? 0 : -EACCES;
}

/* A range between two borders that may become writable, and whose file is not leased for stores;
 * NULL. Under lock. */
static struct mapping *mapping_without_stores(const char *start, size_t bytes)
{
	for (unsigned i = 0; i < range_count(); i++) {
		const struct range *range = range_at(i);

		if (range->shared && range->may_write && !range->mapping->storing &&
		    range_overlaps(range, start, bytes))
			return range->mapping;
	}
	return NULL;
}

/* Under lock, which is given up meanwhile. The memory of these ranges could be stored into already:
 * with a lease for stores the daemon tells other processes first. */
static int ranges_lease_to_store(const char *start, size_t bytes)
{
	struct mapping *mapping;
	int rc = 0;

	while (rc == 0 && (mapping = mapping_without_stores(start, bytes))) {
		struct slot_identity identity = mapping->identity;
		int fd = own_copy(mapping->file->fd);

		exchange_all_direct(identity.device, identity.inode);
		ranges_unlock();
		gpumem *storing = fd < 0 ? NULL : exchange_lease_to_store(fd);
		if (fd >= 0)
			close(fd);
		ranges_lock();
		mapping = mapping_without_stores(start, bytes);
		if (storing && mapping && slot_same(&mapping->identity, &identity))
			mapping->storing = storing;
		else if (storing)
			gpumem_close(storing);
		else
			rc = exchange_file_kernel(&identity);
	}
	return rc;
}

/* Under lock. */
static int ranges_prepare(const char *start, size_t bytes, int protection)
{
	int rc = protection & PROT_EXEC ? ranges_yield(start, bytes) : 0;

	return rc < 0 || !(protection & PROT_WRITE) ? rc : ranges_lease_to_store(start, bytes);
}

int mapping_protect(void *address, size_t bytes, int protection)
{
	size_t whole = range_round_up(bytes);

	INSIDE();
	RANGES_LOCKED();
	int rc = ranges_prepare(address, whole, protection);
	if (rc == 0)
		rc = ranges_split(address, whole);
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
	int known_flags = MS_ASYNC | MS_INVALIDATE | MS_SYNC;
	bool valid = !(flags & ~known_flags) && !(flags & MS_ASYNC && flags & MS_SYNC);

	INSIDE();
	RANGES_LOCKED();
	stream_fence();
	for (unsigned i = 0; i < range_count(); i++)
		if (range_overlaps(range_at(i), address, range_round_up(bytes)))
			gpumem_flush(range_at(i)->mapping->file);
	if (valid && ranges_cover(address, range_round_up(bytes)))
		return 0;
	return real.msync(address, bytes, flags);
}

/* --- mremap */

/* Under lock, which is given up meanwhile. Makes a range of the new length elsewhere, of the same
 * memory, and removes the old range. */
static bool range_map_longer(const struct mapping_remap *remap, const struct range *range,
			     void **address)
{
	struct mapping_request request = {
	    .bytes = remap->new_bytes,
	    .protection = range->protection,
	    .flags = range->shared ? MAP_SHARED : MAP_PRIVATE,
	    .fd = own_copy(range->mapping->file->fd),
	    .offset = (off_t)(range->offset + (uint64_t)(remap->old - range->start)),
	};
	struct range longer = range_of(&request, range->may_write);
	size_t old = range_round_up(remap->old_bytes);
	enum stats_left reason = LEFT_FAILED;

	if (request.fd < 0)
		return false;
	ranges_unlock();
	longer.mapping = range_lease(request.fd, &longer, &reason);
	close(request.fd);
	ranges_lock();
	if (!longer.mapping || !leased_map(&longer, &request, address, &reason)) {
		stats_leave(reason);
		return false;
	}
	if (*address != MAP_FAILED && ranges_split(remap->old, old) == 0 &&
	    real.munmap(remap->old, old) == 0)
		ranges_forget(remap->old, old);
	return true;
}

static bool range_shrink(const struct mapping_remap *remap, void **address)
{
	size_t new_bytes = range_round_up(remap->new_bytes), old = range_round_up(remap->old_bytes);

	*address = remap->old;
	if (new_bytes == old)
		return true;
	if (ranges_split(remap->old + new_bytes, old - new_bytes) < 0)
		return false;
	if (real.munmap(remap->old + new_bytes, old - new_bytes) == 0)
		ranges_forget(remap->old + new_bytes, old - new_bytes);
	else
		*address = MAP_FAILED;
	return true;
}

/* Turns the ranges into the kernel's mapping, which the kernel can then move. */
static bool remap_leave(const struct mapping_remap *remap)
{
	size_t bytes = range_round_up(remap->old_bytes ? remap->old_bytes : 1);

	ranges_yield(remap->old, bytes);
	if (remap->flags & MREMAP_FIXED)
		ranges_yield(remap->target, range_round_up(remap->new_bytes));
	return false;
}

bool mapping_remap(const struct mapping_remap *remap, void **address)
{
	bool plain = !(remap->flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) && remap->new_bytes &&
		     remap->old_bytes && address_is_aligned(remap->old);
	size_t old = range_round_up(remap->old_bytes);

	INSIDE();
	RANGES_LOCKED();
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
	if (range_count() == 0)
		return false;
	RANGES_LOCKED();
	unsigned n_ranges = range_count();

	exchange_file_kernel(identity);
	return range_count() != n_ranges;
}

/* Memory that parent and child both write must stay shared, and a BAR mapping belongs to the
 * parent: both use the page cache. */
void mapping_before_fork(void)
{
	ranges_lock();
	for (unsigned i = range_count(); i-- > 0;) {
		const struct range *range = range_at(i);
		struct slot_identity identity = range->mapping->identity;

		if (range->mapping->on_gpu && range->shared && range->may_write)
			exchange_file_kernel(&identity);
		if (i > range_count())
			i = range_count();
	}
}

void mapping_after_fork(void)
{
	ranges_unlock();
}

/* The child inherits system memory, and needs a lease of its own. */
void mapping_forked(void)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	ranges_forked();
	RANGES_LOCKED();
	for (unsigned i = range_count(); i-- > 0;) {
		if (range_at(i)->mapping->on_gpu) {
			exchange_kernel(i, PLACE_IN_CHILD);
			continue;
		}
		gpumem_get_info(range_at(i)->mapping->file, &info);
		if (range_at(i)->mapping->storing)
			gpumem_get_info(range_at(i)->mapping->storing, &info);
	}
}
