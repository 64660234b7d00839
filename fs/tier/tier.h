/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Where the memory of files lies (docs/tiers.md). Eviction: when a place is full, a GPU or the
 * system memory for files that left GPUs, memory of the files that were used longest ago moves to
 * the next slower place. Threads that need room ask through file_call.make_room, and copy the bytes
 * themselves. Compaction: memory of small files moves together after other files have gone. */
#ifndef FS_TIER_TIER_H
#define FS_TIER_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/core/fact.h"

struct fs;
struct tiers;
struct volume;

struct tier_counters {
	uint64_t evictions;	 /* how often a thread made room */
	uint64_t evicted_bytes;	 /* left a GPU for that */
	uint64_t returned_bytes; /* moved back because the files were used */
};

/* Sets fs->make_room if memory can leave the GPUs: 0 or -ENOMEM. */
int tiers_open(struct fs *fs);
void tiers_close(struct fs *fs);
/* Starts and ends the threads, one for each GPU, that keep memory free for other programs and bring
 * files back: while requests may be served. 0 or -errno. */
int tier_balance_open(struct fs *fs);
void tier_balance_close(struct fs *fs);
/* Files leave the volume's device until bytes of it are free, for any program: 0, -ENOSPC if no
 * more files can leave, or -ENOTSUP if no memory can leave. Under no lock. */
int tier_free(struct fs *fs, const struct volume *volume, uint64_t bytes);
/* ask tells processes that bytes of a volume's device are wanted, when all files left there are
 * leased. Called by any thread. NULL: no call of ask is running any more, and none follows. Without
 * a spill: no effect. */
void tier_ask_by(struct fs *fs,
		 void (*ask)(void *owner, const struct volume *volume, uint64_t bytes),
		 void *owner);
struct tier_counters tier_counters(const struct fs *fs);

/* Starts and ends the thread for compaction, while requests may be served: 0 or -errno. */
int tier_compact_open(struct fs *fs);
void tier_compact_close(struct fs *fs);
/* Wakes the thread if a pool holds far more in shared chunks than files use. Call from time to
 * time; under no lock. */
void tier_compact_check(struct fs *fs);
/* Bytes that compaction has moved. */
uint64_t tier_compacted_bytes(const struct fs *fs);

/* facts.c: for .gpumem/ */
extern const struct fact_group tier_facts[], compaction_facts[];

#endif
