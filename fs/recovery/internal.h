/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The state of a restore and the functions that the sources of fs/recovery share. A restore replays
 * the journal's records, in the order of writing, into the inodes, names and files of a new daemon.
 * A record may mention an inode that does not exist yet or any more; such a record is skipped
 * (fs/journal/format.h). Counts and references follow from the replayed names. No other thread
 * runs, so no lock is taken. Records are not trusted: -EUCLEAN. */
#ifndef FS_RECOVERY_INTERNAL_H
#define FS_RECOVERY_INTERNAL_H

#include "common/hash.h"
#include "fs/core/fs.h"
#include "fs/journal/journal.h"

struct file;

/* A held descriptor that some file uses: of a chunk, or (chunk NULL) of an object. */
struct restore_held {
	UT_hash_handle hh;
	uint64_t id;
	struct chunk *chunk;
};

struct restore_recent {
	struct journal_request requests[JOURNAL_RECENT];
	unsigned n;
};

struct restore {
	struct fs *fs;
	struct journal *journal;
	/* In the order of the journal's volume numbers. */
	struct volume *volumes[JOURNAL_VOLUMES];
	unsigned n_volumes;
	struct restore_recent *recent;	 /* an array of JOURNAL_WRITERS */
	struct journal_request *earlier; /* requests that the last daemon carried over */
	size_t n_earlier;
	struct restore_held *held; /* by id */
	uint64_t *handed_out;	   /* ids of chunks; sorted after the replay */
	size_t n_handed_out;
	bool all_handed_out;
	uint64_t last_id;   /* the highest id in use */
	uint64_t n_missing; /* files whose memory was not found */
};

/* replay.c */
int restore_record(struct restore *restore, const struct journal_record *record);

/* Before restore_tree, inode->quota_dir contains an inode number instead of a pointer. */
static inline struct inode *restore_number(uint64_t ino)
{
	return (struct inode *)(uintptr_t)ino;
}

/* tree.c: restores counts and references from the replayed names. */
int restore_tree(struct restore *restore);
/* Charges every directory for its files, once their memory is restored. Leases wait for their
 * sharers. */
int restore_charges(struct restore *restore);
/* Frees inodes that cannot be reached. From here on the inodes are usable. */
void restore_prune(struct restore *restore);

/* handed_out.c. Remembers the chunks of a record. */
int restore_handed_out(struct restore *restore, const struct journal_view *view);
void restore_handed_out_sort(struct restore *restore);
/* Whether an earlier daemon may have handed out the whole chunk with this id. */
bool restore_was_handed_out(const struct restore *restore, uint64_t id);

/* memory.c. Before restore_memory, the chunk pointer of an extent contains the chunk's id. */
int restore_file(struct restore *restore, struct inode *inode, const struct journal_view *view);
int restore_cut(struct inode *inode, const struct journal_cut *cut);
/* Imports chunks and objects from the held descriptors, and zeroes memory beyond the end of files
 * that were being written or truncated. */
int restore_memory(struct restore *restore, struct inode *inode);
/* missing.c. Whether an error concerns a single file, which is then restored without its memory. */
bool restore_is_missing(int error);
/* Logs the file's path and the error. */
void restore_missing(struct restore *restore, struct inode *inode, int error);
void restore_missing_end(const struct restore *restore);
/* Charges for chunks that files gave up and processes may still have. */
int restore_given_up(struct restore *restore);
/* Drops held descriptors that no file uses. */
int restore_unclaimed(struct restore *restore);
void restore_held_free(struct restore *restore);
/* After a failed restore: frees the imported memory of a file. The descriptors stay held. */
int restore_abandon(struct restore *restore, struct inode *inode);

/* Calls `visit` for every inode, until a call fails. */
int restore_each(struct restore *restore, int (*visit)(struct restore *, struct inode *));

#endif
