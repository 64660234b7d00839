/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Counts again what a daemon at rest has counted: sums of quotas, users, metadata, files of a
 * volume, and bytes of pools. */
#ifndef TESTS_UNIT_RECOUNT_H
#define TESTS_UNIT_RECOUNT_H

#include <utlist.h>

#include "fs/core/fs.h"
#include "fs/file/export.h"
#include "fs/file/host/host.h"
#include "fs/file/internal.h"
#include "fs/holders/internal.h"
#include "fs/ledger/ledger.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/owner.h"
#include "tests/unit/unit.h"

#define VOLUMES_MAX 8
#define USERS_MAX   64

struct recount {
	int64_t metadata, unlinked_open;
	bool leased; /* memory that files gave up may still be held */
	int64_t files[VOLUMES_MAX];
	uint64_t spans[VOLUMES_MAX][PLACES];
	size_t n_users;
	struct ledger_account users[USERS_MAX];
};

/* What all inodes below a directory add to its sums. */
struct below {
	const struct inode *dir;
	int64_t bytes, files;
};

/* The counts of a user. */
static inline uint64_t *counts_of(struct recount *sum, uid_t uid)
{
	size_t i = 0;

	while (i < sum->n_users && sum->users[i].uid != uid)
		i++;
	ck_assert_uint_lt(i, USERS_MAX);
	sum->users[i].uid = uid;
	if (i == sum->n_users)
		sum->n_users++;
	return sum->users[i].counts;
}

static inline bool is_below(const struct inode *payer, const struct inode *dir)
{
	while (payer && payer != dir)
		payer = payer->dir->parent;
	return payer;
}

static inline void below_add(struct fs *fs, struct inode *inode, void *context)
{
	struct below *below = context;

	(void)fs;
	if (!is_below(inode->quota_dir, below->dir))
		return;
	below->bytes += (int64_t)inode->charges.bytes;
	below->files += inode->charges.counted;
}

/* Chunks that files gave up stay charged while a process may have them. */
static inline void each_held(const struct fs *fs,
			     void (*each)(const struct held_chunk *chunk, void *context),
			     void *context)
{
	struct held_file *file, *next;
	struct held_chunk *chunk;

	HASH_ITER (hh, holds_of(fs)->by_ino, file, next)
		DL_FOREACH (file->chunks, chunk)
			each(chunk, context);
}

static inline void below_add_held(const struct held_chunk *chunk, void *context)
{
	struct below *below = context;

	if (is_below(chunk->dir, below->dir))
		below->bytes += (int64_t)chunk->image.bytes;
}

static inline void recount_held(const struct held_chunk *chunk, void *context)
{
	enum memory_place place = (enum memory_place)chunk->image.place;

	counts_of(context, chunk->image.uid)[owner_place_kind(place)] += chunk->image.bytes;
	counts_of(context, chunk->image.uid)[LEDGER_HELD] += chunk->image.bytes;
	counts_of(context, chunk->image.uid)[LEDGER_BYTES] += chunk->image.bytes;
	counts_of(context, chunk->image.uid)[LEDGER_HELD_CHUNKS]++;
	/* On the shelf the daemon has the chunk. */
	if (chunk->span.chunk) {
		struct recount *sum = context;

		sum->spans[chunk->volume->index][place] += chunk->span.bytes;
		counts_of(sum, chunk->image.uid)[LEDGER_DESCRIPTORS] += LEDGER_DESCRIPTOR;
	}
}

static inline void recount_device(struct inode *inode, struct recount *sum)
{
	struct file *file = inode->file;
	uint64_t in[PLACES] = {0};

	uint64_t descriptors = 0;

	EXTENTS_FOREACH (extent, &file->extents) {
		in[extent->span.chunk->place] += extent->span.bytes;
		descriptors += span_owns_chunk(&extent->span) ? LEDGER_DESCRIPTOR
							      : extent->span.bytes / POOL_BLOCK_MIN;
	}
	ck_assert_uint_eq(inode->charges.descriptors,
			  descriptors + inode->charges.objects * LEDGER_DESCRIPTOR);
	counts_of(sum, inode->uid)[LEDGER_DESCRIPTORS] += descriptors;
	for (enum memory_place place = PLACE_GPU; place < PLACES; place++) {
		sum->spans[file->volume->index][place] += in[place];
		ck_assert_uint_eq(inode->charges.placed[place] * POOL_BLOCK_MIN, in[place]);
		counts_of(sum, inode->uid)[owner_place_kind(place)] += in[place];
	}
	ck_assert_uint_eq(file->allocated, in[PLACE_GPU] + in[PLACE_HOST] + in[PLACE_DISK]);
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

	ck_assert_uint_eq(inode->charges.metadata, inode_count_metadata(inode));
	sum->metadata += inode->charges.metadata;
	counts_of(sum, inode->uid)[LEDGER_METADATA] += inode->charges.metadata;
	sum->unlinked_open += inode->uses.unlinked_open;
	if (S_ISDIR(inode->mode)) {
		struct below below = {.dir = inode};

		each_inode(fs, below_add, &below);
		each_held(fs, below_add_held, &below);
		ck_assert_int_eq(inode->dir->rbytes, below.bytes);
		ck_assert_int_eq(inode->dir->rfiles, below.files);
	}
	if (!S_ISREG(inode->mode))
		return;
	sum->files[inode->volume->index]++;
	sum->leased |= file_leases(inode->file) || file_is_loose(inode->file);
	ck_assert_uint_eq(inode->charges.bytes, inode->file->allocated);
	counts_of(sum, inode->uid)[LEDGER_BYTES] += inode->charges.bytes;
	/* A file that moved to a GPU keeps its object, which is empty then. */
	ck_assert_uint_eq(inode->charges.objects, inode->file->object.fd >= 0);
	counts_of(sum, inode->uid)[LEDGER_HOST_FILES] += inode->charges.objects;
	ck_assert_uint_eq(inode->charges.tmpfs, file_tmpfs(inode->file) == SYSTEM_TMPFS_OWN);
	counts_of(sum, inode->uid)[LEDGER_HOST_TMPFS] += inode->charges.tmpfs;
	counts_of(sum, inode->uid)[LEDGER_DESCRIPTORS] +=
	    inode->charges.objects * LEDGER_DESCRIPTOR;
	if (inode->volume->device)
		recount_device(inode, sum);
	else if (inode->file->object.fd >= 0)
		ck_assert_uint_eq(inode->charges.bytes,
				  host_due(inode->file, inode->file->object.fd));
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
		ck_assert_uint_ge(usage.chunk_bytes, usage.span_bytes + usage.held_bytes);
	}
}

static inline bool device_is_counted(const struct volume *volume)
{
	struct pool_usage usage = pool_usage(volume->pool);
	struct device_memory memory;

	return device_memory(volume->device, &memory) == 0 &&
	       memory.total - memory.free == usage.chunk_bytes - usage.held_bytes;
}

static inline void recount_budget(struct fs *fs, enum memory_place place)
{
	uint64_t held = 0;

	for (unsigned i = 0; i < fs->n_volumes; i++) {
		struct pool *pool = volume_pool(&fs->volumes[i], place);

		held += pool ? pool_usage(pool).chunk_bytes : 0;
	}
	ck_assert_uint_eq(fs->budgets[place].held, held);
}

/* Leases, connections and texts, which no inode shows, cost metadata too. */
static inline void recount_user(const struct ledger_account *account, struct recount *sum)
{
	static const enum ledger_kind of_inodes[] = {
	    LEDGER_METADATA, LEDGER_HOST_FILES, LEDGER_HOST_TMPFS, LEDGER_DESCRIPTORS,
	    LEDGER_BYTES,    LEDGER_GPU,	LEDGER_SPILL_HOST, LEDGER_SPILL_DISK,
	    LEDGER_HELD,     LEDGER_HELD_CHUNKS};
	uint64_t *counts = counts_of(sum, account->uid), others = 0;

	for (unsigned kind = 0; kind < LEDGER_KINDS; kind++)
		others += account->counts[kind] * ledger_rows[kind].cost;
	counts[LEDGER_METADATA] += others;
	sum->metadata += (int64_t)others;
	for (unsigned i = 0; i < sizeof(of_inodes) / sizeof(of_inodes[0]); i++)
		ck_assert_uint_eq(account->counts[of_inodes[i]], counts[of_inodes[i]]);
}

static inline void recount_users(struct fs *fs, struct recount *sum)
{
	struct ledger_account *list;
	size_t n;

	ck_assert_int_eq(ledger_list(fs, &list, &n), 0);
	for (size_t i = 0; i < n; i++)
		recount_user(&list[i], sum);
	ck_assert_uint_eq(n, sum->n_users);
	free(list);
}

static inline void recount(struct fs *fs)
{
	struct recount sum = {0};

	each_inode(fs, recount_inode, &sum);
	each_held(fs, recount_held, &sum);
	recount_users(fs, &sum);
	ck_assert_int_eq(ledger_of(fs)->metadata_bytes, sum.metadata);
	ck_assert_int_eq(fs->inodes->n_unlinked_open, sum.unlinked_open);
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
