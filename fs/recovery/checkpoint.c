/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/recovery/checkpoint.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/record.h"

/* A half of the journal is compacted when it is twice as large as after the last compaction, plus
 * this many units. */
#define MORE_UNITS ((16ULL << 20) / JOURNAL_UNIT)

/* The journal stores its size after the last compaction. If each daemon compared with the size at
 * its own start instead, a daemon that lives briefly would never compact, and each daemon would
 * read more than the last daemon. */
static void journal_limit_set(struct journal *journal)
{
	uint64_t units = atomic_load(&journal->header->compacted);

	atomic_store(&journal->limit, units * 2 + MORE_UNITS);
}

static uint64_t journal_units(const struct journal *journal)
{
	const struct journal_header *header = journal->header;

	return atomic_load(&header->units[journal_newest(atomic_load(&header->state))]);
}

void checkpoint(struct fs *fs)
{
	struct journal *journal = fs->journal;
	uint32_t slot = 0;
	struct inode *inode;

	scoped_lock(&journal->checkpoint_lock);
	/* -EBUSY: an earlier daemon was killed during a checkpoint, and this call finishes that
	 * checkpoint. */
	journal_rotate_begin(journal);
	while ((inode = inode_table_next(fs->inodes, &slot))) {
		record_checkpoint(fs, inode);
		inode_put(fs, inode, 1);
	}
	if (!atomic_load(&journal->header->broken))
		journal_rotate_end(journal);
	atomic_store(&journal->header->compacted, (uint32_t)journal_units(journal));
	journal_limit_set(journal);
}

static void *checkpoint_main(void *pointer)
{
	struct fs *fs = pointer;
	struct journal *journal = fs->journal;

	pthread_mutex_lock(&journal->lock);
	while (!journal->ending) {
		if (!journal->checkpoint_wanted) {
			pthread_cond_wait(&journal->changed, &journal->lock);
			continue;
		}
		pthread_mutex_unlock(&journal->lock);
		checkpoint(fs);
		pthread_mutex_lock(&journal->lock);
		journal->checkpoint_wanted = false;
		pthread_cond_broadcast(&journal->changed);
	}
	pthread_mutex_unlock(&journal->lock);
	worker_end();
	return NULL;
}

int checkpoint_start(struct fs *fs)
{
	struct journal *journal = fs->journal;

	if (!journal)
		return 0;
	journal_limit_set(journal);
	/* An earlier daemon began a checkpoint, or was killed before the checkpoint was due. */
	journal->checkpoint_wanted = journal_has_older(atomic_load(&journal->header->state)) ||
				     journal_units(journal) > atomic_load(&journal->limit);
	int error = pthread_create(&journal->thread, NULL, checkpoint_main, fs);

	if (error)
		log_error("journal: no thread to compact it: %s", strerror(error));
	journal->running = !error;
	return 0;
}

void checkpoint_end(struct fs *fs)
{
	struct journal *journal = fs->journal;

	if (!journal || !journal->running)
		return;
	pthread_mutex_lock(&journal->lock);
	journal->ending = true;
	pthread_cond_broadcast(&journal->changed);
	pthread_mutex_unlock(&journal->lock);
	pthread_join(journal->thread, NULL);
	journal->running = false;
}
