/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Two simulated GPUs and host/, for the tests of fs/file/file.h. New memory of the devices is not
 * zero, as on a GPU, and device work fails on request of the test. */
#ifndef TESTS_UNIT_FILE_FIXTURE_H
#define TESTS_UNIT_FILE_FIXTURE_H

#include <errno.h>
#include <string.h>

#include "backend/bar_cache.h"
#include "backend/disk.h"
#include "backend/providers.h"
#include "fs/ahead/ahead.h"
#include "fs/file/device/device.h"
#include "fs/file/file.h"
#include "fs/volume/volume.h"
#include "tests/unit/poison.h"
#include "tests/unit/unit.h"

#define KIB 1024ULL
#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

#define AHEAD_BLOCKS 6

enum { GPU0, GPU1, HOST, VOLUMES };

struct quota_owner {
	_Atomic int64_t total;
	_Atomic int64_t limit;
	_Atomic int64_t spilled[PLACES], spill_limit; /* in other places than the device */
};

struct fixture {
	struct backend *backend;
	struct backend_ops ops;
	struct ahead *ahead;
	struct volume volumes[VOLUMES];
	struct pool_budget spill, disk;
	struct quota_owner quota_owner;
	struct file_call call;
};

/* The number of device operations before the failing operation (-EIO); negative: no failure. */
static _Atomic int fixture_work_left = -1;

static inline int fixture_fails(void)
{
	if (atomic_load(&fixture_work_left) < 0)
		return 0;
	return atomic_fetch_sub(&fixture_work_left, 1) <= 0
		   ? (atomic_store(&fixture_work_left, 0), -EIO)
		   : 0;
}

static inline int fixture_in(struct copier *copier, struct chunk *to, uint64_t offset,
			     const void *from, size_t bytes)
{
	int rc = fixture_fails();

	return rc < 0 ? rc : backend_host_ops.dma_in(copier, to, offset, from, bytes);
}

static inline int fixture_out(struct copier *copier, void *to, struct chunk *from, uint64_t offset,
			      size_t bytes)
{
	int rc = fixture_fails();

	return rc < 0 ? rc : backend_host_ops.dma_out(copier, to, from, offset, bytes);
}

static inline int fixture_across(struct copier *copier, struct chunk *to, uint64_t to_offset,
				 struct chunk *from, uint64_t from_offset, uint64_t bytes)
{
	int rc = fixture_fails();

	return rc < 0
		   ? rc
		   : backend_host_ops.dma_across(copier, to, to_offset, from, from_offset, bytes);
}

static inline int fixture_add(_Atomic int64_t *total, int64_t bytes, _Atomic int64_t *limit)
{
	int64_t now = atomic_fetch_add(total, bytes) + bytes;

	if (bytes > 0 && now > atomic_load(limit)) {
		atomic_fetch_sub(total, bytes);
		return -EDQUOT;
	}
	return 0;
}

static inline int fixture_charge(void *quota_owner, int64_t bytes)
{
	struct quota_owner *account = quota_owner;

	return fixture_add(&account->total, bytes, &account->limit);
}

static inline int fixture_charge_place(void *quota_owner, enum memory_place place, int64_t bytes,
				       bool replaces)
{
	struct quota_owner *account = quota_owner;

	(void)replaces;
	if (place == PLACE_GPU)
		return 0;
	return fixture_add(&account->spilled[place], bytes, &account->spill_limit);
}

static inline void fixture_open(struct fixture *f, uint64_t device_bytes, uint64_t max_chunk)
{
	struct backend_config config = {
	    .kind = BACKEND_HOST, .host_bytes = device_bytes, .host_gpus = 2, .bar = BAR_OFF};
	struct pool_limits limits = {.size = UINT64_MAX};

	memset(f, 0, sizeof(*f));
	ck_assert_int_eq(backend_open(&config, &f->backend), 0);
	f->ops = backend_host_ops;
	f->ops.chunk_new = poisoned_chunk;
	f->ops.dma_in = fixture_in;
	f->ops.dma_out = fixture_out;
	f->ops.dma_across = fixture_across;
	f->backend->ops = &f->ops;
	for (int i = GPU0; i <= GPU1; i++)
		ck_assert_int_eq(
		    volume_open_gpu(&f->volumes[i], f->backend->devices[i], &limits, max_chunk), 0);
	ck_assert_int_eq(volume_open_host(&f->volumes[HOST], device_bytes), 0);
	ck_assert_int_eq(ahead_new(f->backend, AHEAD_BLOCKS, &f->ahead), 0);
	for (int i = 0; i < VOLUMES; i++)
		f->volumes[i].ahead = f->ahead;
	atomic_store(&f->quota_owner.limit, INT64_MAX);
	atomic_store(&f->quota_owner.spill_limit, INT64_MAX);
	f->call.charge = fixture_charge;
	f->call.charge_place = fixture_charge_place;
	f->call.quota_owner = &f->quota_owner;
	ck_assert_int_eq(copier_open(f->backend, &f->call.copier), 0);
}

/* From here on memory of both GPUs may leave for bytes of system memory. */
static inline void fixture_spill(struct fixture *f, uint64_t bytes)
{
	f->spill.size = bytes;
	for (int i = GPU0; i <= GPU1; i++)
		ck_assert_int_eq(volume_open_place(&f->volumes[i], PLACE_HOST, &f->spill), 0);
}

/* The same for bytes of a disk. */
static inline void fixture_disk(struct fixture *f, uint64_t bytes)
{
	f->disk.size = bytes;
	ck_assert_int_eq(disk_dir_open(f->backend, "/tmp"), 0);
	for (int i = GPU0; i <= GPU1; i++)
		ck_assert_int_eq(volume_open_place(&f->volumes[i], PLACE_DISK, &f->disk), 0);
}

/* Checks that all memory was given back, in the quota and in the pools. */
static inline void fixture_close(struct fixture *f)
{
	ck_assert_int_eq(atomic_load(&f->quota_owner.total), 0);
	for (int place = 0; place < PLACES; place++)
		ck_assert_int_eq(atomic_load(&f->quota_owner.spilled[place]), 0);
	for (int i = GPU0; i <= GPU1; i++)
		ck_assert_uint_eq(pool_usage(f->volumes[i].pool).span_bytes, 0);
	for (int i = GPU0; f->volumes[GPU0].spill && i <= GPU1; i++)
		ck_assert_uint_eq(pool_usage(f->volumes[i].spill).span_bytes, 0);
	for (int i = GPU0; f->volumes[GPU0].disk && i <= GPU1; i++)
		ck_assert_uint_eq(pool_usage(f->volumes[i].disk).span_bytes, 0);
	copier_close(f->call.copier);
	ahead_free(f->ahead);
	for (int i = 0; i < VOLUMES; i++)
		volume_close(&f->volumes[i]);
	backend_close(f->backend);
}

static inline struct file *fixture_file(struct fixture *f, int volume)
{
	struct file *file;

	ck_assert_int_eq(file_new(&f->volumes[volume], &file), 0);
	return file;
}

/* Checks the invariants of a file at rest. */
static inline void check_layout(const struct file *file)
{
	const struct extents *extents = &file->extents;
	uint64_t bytes = 0, end = 0;

	EXTENTS_FOREACH (extent, extents) {
		uint64_t length = extent->span.bytes;

		ck_assert_uint_ge(extent->offset, end);
		ck_assert_uint_gt(length, 0);
		end = extent_end(extent);
		bytes += length;
		if (span_owns_chunk(&extent->span)) {
			ck_assert_uint_eq(extent->offset % CHUNK_ALIGN, 0);
			ck_assert_uint_eq(length, extent->span.chunk->bytes);
		} else {
			ck_assert_uint_eq(extent->offset / CHUNK_ALIGN, (end - 1) / CHUNK_ALIGN);
			ck_assert_uint_eq((extent->offset | length) % POOL_BLOCK_MIN, 0);
		}
	}
	if (file->volume->pool)
		ck_assert_uint_eq(bytes, atomic_load(&file->allocated));
	else
		ck_assert_uint_eq(extents->count, 0);
}

static inline bool all_zero(const unsigned char *bytes, uint64_t length)
{
	return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* Checks that memory beyond the size is zero, because growth would expose the bytes. */
static inline void check_beyond_end(struct fixture *f, const struct file *file)
{
	struct extents_walk walk =
	    extents_walk(&file->extents, file_size(file), extents_end(&file->extents));
	struct segment segment;

	while (extents_next(&walk, &segment)) {
		if (!segment.span)
			continue;
		unsigned char *bytes = malloc(segment.bytes);

		ck_assert_int_eq(copy_out(f->call.copier, bytes, segment.span, segment.span_offset,
					  segment.bytes, COPY_DMA),
				 0);
		ck_assert_int_eq(copier_wait(f->call.copier), 0);
		ck_assert_msg(all_zero(bytes, segment.bytes), "at %lu of %lu",
			      (unsigned long)segment.offset, (unsigned long)file_size(file));
		free(bytes);
	}
}

#endif
