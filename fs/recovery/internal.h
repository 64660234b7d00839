/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared by restore*.c. Records are replayed into inodes, names and files of the new daemon in the
 * order in which they were written; what they mention that is not there yet, or any more, is passed
 * over (journal_format.h). Afterwards what was left out is worked out from what there is. Nobody
 * else is there, so no lock is taken. What a record says is not trusted: -EUCLEAN. */
#ifndef FS_RECOVERY_INTERNAL_H
#define FS_RECOVERY_INTERNAL_H

#include "common/hash.h"
#include "fs/core/fs.h"
#include "fs/journal/journal.h"

struct file;

/* What is held and some file has: a chunk, or (NULL) an object. */
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
	/* By the index that the journal has for them. */
	struct volume *volumes[JOURNAL_VOLUMES];
	unsigned n_volumes;
	struct restore_recent *recent;	 /* JOURNAL_WRITERS of them */
	struct journal_request *earlier; /* told again by the last daemon */
	size_t n_earlier;
	struct restore_held *held; /* by id */
	uint64_t last_id;	   /* the highest that is in use */
	uint64_t n_missing;	   /* files whose memory was not found */
};

/* restore_replay.c */
int restore_record(struct restore *restore, const struct journal_record *record);

/* Until the end an inode's home is the number of one. */
static inline struct inode *restore_number(uint64_t ino)
{
	return (struct inode *)(uintptr_t)ino;
}

/* restore_tree.c: what names, counts and references follow from the replayed names. */
int restore_tree(struct restore *restore);
/* Who has how much, once memory is there; leases wait for their sharers. */
int restore_charges(struct restore *restore);
/* What nobody can reach goes; the inodes are usable. */
void restore_prune(struct restore *restore);

/* restore_file.c. Until restore_memory a chunk in an extent is its id. */
int restore_file(struct restore *restore, struct inode *inode, const struct journal_view *view);
int restore_cut(struct inode *inode, const struct journal_cut *cut);
/* Chunks and objects, from their descriptors; and the zeroes beyond the end of files that were
 * being written or cut off. */
int restore_memory(struct restore *restore, struct inode *inode);
/* restore_missing.c. Whether an error is of a file alone, which then goes on without its memory. */
bool restore_is_missing(int error);
/* Says so, with the file's path. */
void restore_missing(struct restore *restore, struct inode *inode, int error);
void restore_missing_end(const struct restore *restore);
/* Gives back what is held and no file has. */
int restore_unclaimed(struct restore *restore);
void restore_held_free(struct restore *restore);
/* Where restoring failed: the memory of a file, as far as there is some; it goes on being held. */
int restore_abandon(struct restore *restore, struct inode *inode);

/* Every inode; the function's error ends it. */
int restore_each(struct restore *restore, int (*each)(struct restore *, struct inode *));

#endif
