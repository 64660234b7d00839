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

static bool checkpoint_is_wanted(struct journal *journal)
{
	scoped_lock(&journal->lock);
	return journal->checkpoint_wanted;
}

static void checkpoint_work(struct background *background)
{
	struct fs *fs = background->context;
	struct journal *journal = fs->journal;

	do {
		if (!checkpoint_is_wanted(journal))
			continue;
		checkpoint(fs);
		scoped_lock(&journal->lock);
		journal->checkpoint_wanted = false;
		pthread_cond_broadcast(&journal->changed);
	} while (background_wait(background, -1));
	worker_end();
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
	int rc = background_start(&journal->checkpointer, checkpoint_work, fs);

	if (rc < 0)
		log_error("journal: no thread to compact it: %s", strerror(-rc));
	return 0;
}

void checkpoint_end(struct fs *fs)
{
	struct journal *journal = fs->journal;

	if (!journal)
		return;
	background_stop(&journal->checkpointer);
	scoped_lock(&journal->lock);
	pthread_cond_broadcast(&journal->changed);
}
