/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Counts again what a daemon at rest has counted: sums of quotas, users, metadata, files of a
 * volume, and bytes of pools. */
#ifndef TESTS_UNIT_FAILURES_RECOUNT_H
#define TESTS_UNIT_FAILURES_RECOUNT_H

#include "fs/core/fs.h"
#include "fs/file/export.h"
#include "fs/file/host.h"
#include "fs/file/internal.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/user_limits.h"
#include "tests/unit/unit.h"

#define VOLUMES_MAX 8
/* The users of the scenarios are 0 to USERS_MAX - 1. */
#define USERS_MAX 8

/* Bytes of metadata that a lease, and a connection, count for. */
#define SHARER_BYTES 512

struct recount {
	int64_t metadata, unlinked_open;
	bool leased; /* memory that files gave up may still be held */
	int64_t files[VOLUMES_MAX];
	uint64_t spans[VOLUMES_MAX][PLACES];
	uint64_t users[USERS_MAX][USER_KINDS];
};

/* What all inodes below a directory add to its sums. */
struct below {
	const struct inode *dir;
	int64_t bytes, files;
};

static inline bool pays_above(const struct inode *inode, const struct inode *dir)
{
	const struct inode *payer = inode->quota_dir;

	while (payer && payer != dir)
		payer = payer->dir->parent;
	return payer;
}

static inline void below_add(struct fs *fs, struct inode *inode, void *context)
{
	struct below *below = context;

	(void)fs;
	if (!pays_above(inode, below->dir))
		return;
	below->bytes += (int64_t)inode->charged;
	below->files += inode->counted;
}

static inline void recount_device(struct inode *inode, struct recount *sum)
{
	struct file *file = inode->file;
	uint64_t in[PLACES] = {0};

	EXTENTS_FOREACH (extent, &file->extents)
		in[extent->span.chunk->place] += extent->span.bytes;
	for (enum memory_place place = PLACE_GPU; place < PLACES; place++) {
		sum->spans[file->volume->index][place] += in[place];
		if (place == PLACE_GPU)
			continue;
		ck_assert_uint_eq(inode->spilled[place - PLACE_HOST] * POOL_BLOCK_MIN, in[place]);
		sum->users[inode->uid][USER_SPILL_HOST + place - PLACE_HOST] += in[place];
	}
	ck_assert_uint_eq(file->allocated, in[PLACE_GPU] + in[PLACE_HOST] + in[PLACE_DISK]);
}

static inline int64_t metadata_of(const struct inode *inode)
{
	int64_t bytes = METADATA_INODE + inode->xattr_bytes;

	if (S_ISLNK(inode->mode))
		bytes += (int64_t)strlen(inode->target);
	if (!S_ISDIR(inode->mode) && inode->nlink > 1)
		bytes += (inode->nlink - 1) * METADATA_NAME;
	return bytes;
}

static inline void each_inode(struct fs *fs, void (*each)(struct fs *, struct inode *, void *),
			      void *context)
{
	uint32_t slot = 0;
	struct inode *inode;

	while ((inode = inode_table_next(fs->inodes, &slot))) {
		each(fs, inode, context);
		inode_put(fs, inode, 1);
	}
}

static inline void recount_inode(struct fs *fs, struct inode *inode, void *context)
{
	struct recount *sum = context;

	sum->metadata += metadata_of(inode);
	sum->unlinked_open += inode->unlinked_open;
	if (S_ISDIR(inode->mode)) {
		struct below below = {.dir = inode};

		each_inode(fs, below_add, &below);
		ck_assert_int_eq(inode->dir->rbytes, below.bytes);
		ck_assert_int_eq(inode->dir->rfiles, below.files);
	}
	if (!S_ISREG(inode->mode))
		return;
	sum->files[inode->volume->index]++;
	sum->leased |= file_leases(inode->file) || file_is_loose(inode->file);
	ck_assert_uint_eq(inode->charged, inode->file->allocated);
	/* A file that moved to a GPU keeps its object, which is empty then. */
	if (inode->file->fd >= 0)
		sum->users[inode->object_uid][USER_HOST_FILES]++;
	if (inode->volume->device)
		recount_device(inode, sum);
	else if (inode->file->fd >= 0)
		ck_assert_uint_eq(inode->charged, host_due(inode->file, inode->file->fd));
}

static inline void recount_pools(const struct volume *volume, const struct recount *sum)
{
	for (enum memory_place place = PLACE_GPU; place < PLACES; place++) {
		struct pool *pool = volume_pool(volume, place);

		if (!pool)
			continue;
		struct pool_usage usage = pool_usage(pool);

		ck_assert_uint_ge(usage.span_bytes, sum->spans[volume->index][place]);
		ck_assert(sum->leased || usage.span_bytes == sum->spans[volume->index][place]);
		ck_assert_uint_ge(usage.chunk_bytes, usage.span_bytes);
	}
}

static inline bool device_is_counted(const struct volume *volume)
{
	struct device_memory memory;

	return device_memory(volume->device, &memory) == 0 &&
	       memory.total - memory.free == pool_usage(volume->pool).chunk_bytes;
}

static inline void recount_budget(struct fs *fs, enum memory_place place)
{
	uint64_t held = 0;

	for (unsigned i = 0; i < fs->n_volumes; i++) {
		struct pool *pool = volume_pool(&fs->volumes[i], place);

		held += pool ? pool_usage(pool).chunk_bytes : 0;
	}
	ck_assert_uint_eq(fs_place_budget(fs, place)->held, held);
}

static inline void recount(struct fs *fs)
{
	struct recount sum = {0};

	each_inode(fs, recount_inode, &sum);
	for (uid_t uid = 0; uid < USERS_MAX; uid++) {
		for (enum user_kind kind = USER_HOST_FILES; kind < USER_KINDS; kind++)
			ck_assert_uint_eq(user_limits_count(fs, uid, kind), sum.users[uid][kind]);
		sum.metadata += (int64_t)(user_limits_count(fs, uid, USER_LEASES) +
					  user_limits_count(fs, uid, USER_CONNECTIONS)) *
				SHARER_BYTES;
	}
	ck_assert_int_eq(fs->metadata_bytes, sum.metadata);
	ck_assert_int_eq(fs->n_unlinked_open, sum.unlinked_open);
	for (unsigned i = 0; i < fs->n_volumes; i++) {
		ck_assert_int_eq(fs->volumes[i].files, sum.files[i]);
		recount_pools(&fs->volumes[i], &sum);
		/* Memory that no pool holds is lost, but for a chunk of the thread that measures
		 * copies. */
		if (fs->volumes[i].device)
			UNIT_AWAIT(device_is_counted(&fs->volumes[i]));
	}
	recount_budget(fs, PLACE_HOST);
	recount_budget(fs, PLACE_DISK);
}

#endif
