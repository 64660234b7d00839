/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A thread that moves blocks of small files out of the emptiest shared chunks of a pool into other
 * shared chunks, so that the mount holds little more of a device than files use. Sleeps until a
 * pool holds too much. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "backend/pool.h"
#include "common/background.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/file/file.h"
#include "fs/tier/tier.h"
#include "fs/tree/inode_table.h"

/* A pool may hold a fifth more than the blocks, and two chunks: the spare, and the chunk that is
 * being filled. Compaction leaves a tenth. */
#define HELD_PART 5
#define KEPT_PART 10
#define SLACK	  (2 * CHUNK_ALIGN)

/* Compaction waits while files are written, which fill the chunks too, and while files are removed.
 */
#define SETTLE_MS 1000

/* A pool that compaction did not make smaller, because its files are leased or in use, is passed
 * over: once, then 3 times, ... */
#define PAUSE_MAX 15

struct compaction {
	struct background background;
	_Atomic uint64_t bytes;
	/* Of each pool; the thread's own. */
	struct patience {
		unsigned pause, rounds_left;
	} patience[BACKEND_DEVICES_MAX + 1][PLACES];
};

static bool is_sparse(const struct pool_usage *usage)
{
	return usage->shared_bytes > usage->block_bytes + usage->block_bytes / HELD_PART + SLACK;
}

static FS_STATE(struct compaction, compaction_of, FS_COMPACTION)

    /* -ENOSPC: no room to move to. Files in use stay, and whole chunks of leased ones. */
    static int inode_compact(struct fs *fs, const struct volume *volume, struct inode *inode,
			     struct copier *copier)
{
	struct compaction *compaction = compaction_of(fs);
	struct inode_call call;
	uint64_t moved;

	if (!S_ISREG(atomic_load(&inode->mode)) || file_volume(inode->file) != volume ||
	    !file_drained(inode->file))
		return 0;
	inode_call_init(&call, fs, inode, copier);
	int rc = file_compact(inode->file, &call.call, &moved);

	atomic_fetch_add(&compaction->bytes, moved);
	return rc;
}

static void chunks_empty(struct fs *fs, const struct volume *volume, const struct pool *pool)
{
	const struct background *background = &compaction_of(fs)->background;
	struct copier *copier = worker_copier(fs);
	struct inode *inode;
	uint32_t slot = 0;
	int rc = 0;

	while (copier && rc != -ENOSPC && pool_drains(pool) &&
	       !atomic_load(&background->stopping) &&
	       (inode = inode_table_next(fs->inodes, &slot))) {
		rc = inode_compact(fs, volume, inode, copier);
		inode_put(fs, inode, 1);
	}
}

/* Whether the pool is as it was, although it holds too much. */
static bool pool_compact(struct fs *fs, const struct volume *volume, struct pool *pool)
{
	struct pool_usage old_usage = pool_usage(pool);

	if (!is_sparse(&old_usage) || !background_wait(&compaction_of(fs)->background, SETTLE_MS))
		return false;
	struct pool_usage usage = pool_usage(pool);
	int64_t change = (int64_t)usage.block_bytes - (int64_t)old_usage.block_bytes;

	if (llabs(change) > (int64_t)SLACK)
		return false;
	if (pool_drain(pool, usage.block_bytes + usage.block_bytes / KEPT_PART))
		chunks_empty(fs, volume, pool);
	pool_drain_end(pool);
	return pool_usage(pool).shared_bytes >= usage.shared_bytes;
}

static void volume_compact(struct fs *fs, const struct volume *volume)
{
	for (enum memory_place place = PLACE_GPU; place < PLACES; place++) {
		struct pool *pool = volume_pool(volume, place);
		struct patience *patience = &compaction_of(fs)->patience[volume->index][place];

		if (!pool || (patience->rounds_left && patience->rounds_left--))
			continue;
		bool in_vain = pool_compact(fs, volume, pool);

		patience->pause = in_vain ? 2 * patience->pause + 1 : 0;
		if (patience->pause > PAUSE_MAX)
			patience->pause = PAUSE_MAX;
		patience->rounds_left = patience->pause;
	}
}

static void compact_work(struct background *background)
{
	struct fs *fs = background->context;

	while (background_wait(background, -1))
		for (unsigned i = 0; i < fs->n_volumes; i++)
			volume_compact(fs, &fs->volumes[i]);
	worker_end();
}

void tier_compact_check(struct fs *fs)
{
	struct compaction *compaction = compaction_of(fs);

	for (unsigned i = 0; compaction && i < fs->n_volumes; i++)
		for (enum memory_place place = PLACE_GPU; place < PLACES; place++) {
			struct pool *pool = volume_pool(&fs->volumes[i], place);
			struct pool_usage usage = pool ? pool_usage(pool) : (struct pool_usage){0};

			if (!is_sparse(&usage))
				continue;
			background_wake(&compaction->background);
			return;
		}
}

uint64_t tier_compacted_bytes(const struct fs *fs)
{
	const struct compaction *compaction = compaction_of(fs);

	return compaction ? atomic_load(&compaction->bytes) : 0;
}

int tier_compact_open(struct fs *fs)
{
	struct compaction *compaction = calloc(1, sizeof(*compaction));

	if (!compaction)
		return -ENOMEM;
	fs->states[FS_COMPACTION] = compaction;
	int rc = background_start(&compaction->background, compact_work, fs);

	if (rc < 0)
		tier_compact_close(fs);
	return rc;
}

void tier_compact_close(struct fs *fs)
{
	struct compaction *compaction = compaction_of(fs);

	if (!compaction)
		return;
	background_stop(&compaction->background);
	free(compaction);
	fs->states[FS_COMPACTION] = NULL;
}
