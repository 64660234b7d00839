/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* persist=disk: saves the bytes and attributes of files in the spool, a directory on a disk, and
 * brings the files back at the next mount. gpumemfs-spool(5) describes the directory.
 *
 * A save replaces the previous copy as a whole or not at all, whenever the daemon or the machine
 * dies. Recalled bytes are compared with the saved hashes: reading a file whose copy is damaged is
 * an error, and the copy stays until the file is removed.
 *
 * Without -o spool= spool_of gives NULL, and every function that takes a struct fs does nothing. */
#ifndef FS_SPOOL_SPOOL_H
#define FS_SPOOL_SPOOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/core/fact.h"
#include "fs/core/fs.h"
#include "fs/tree/inode_hooks.h"

struct inode;

static inline FS_STATE(struct spool, spool_of, FS_SPOOL)

    /* --- the mount */

    /* Whether the directory can be a spool. Another daemon may still be using the directory, so the
     * lock is not tried. 0, or -errno after a log line. */
    int spool_check(const struct options *options);
/* Called once the tree exists. Takes the directory, waits for a daemon that is still saving to the
 * directory, and brings back names and attributes. 0, or -errno after a log line. */
int spool_open(struct fs *fs);
/* Requests are being served: saves changed names from here on, and with restore=now recalls all
 * bytes. */
void spool_start(struct fs *fs);
/* No request is in flight: saves every file that changed. */
void spool_end(struct fs *fs);
void spool_close(struct fs *fs); /* before the tree is freed */

/* --- saving */

struct spool_saved {
	uint64_t files, bytes; /* written by this save */
	uint64_t failed;       /* files that could not be saved */
	uint64_t first_failed; /* inode number of the first failed file; 0: none */
};

/* Saves one file and the directories above it; for a directory, also the names of its entries that
 * have a record. 0, or -errno, with a log line if an administrator must act. */
int spool_save(struct fs *fs, struct inode *inode);
/* Saves everything of an owner below a directory (NULL: the whole tree) with several threads. The
 * first error; -EINTR after an interrupt. */
#define SPOOL_ALL_USERS ((uid_t)-1)
int spool_save_below(struct fs *fs, struct inode *dir, uid_t owner, struct spool_saved *saved);

/* The bytes of [from, from + bytes) changed. To be called before the reply. */
void spool_mark_dirty(struct inode *inode, uint64_t from, uint64_t bytes);

/* --- counters, for .gpumem/ */

struct spool_counters {
	uint64_t saves;	      /* records written */
	uint64_t saved_bytes; /* bytes of files, written to the disk */
	uint64_t errors;      /* saves that failed */
	uint64_t fetched_bytes;
	uint64_t damaged; /* files whose copy is damaged */
	int last_error;	  /* errno of the last failed save; 0: none */
};
struct spool_counters spool_counters(struct fs *fs);

extern const struct inode_hooks spool_hooks;
/* facts.c: for .gpumem/ */
extern const struct fact_group spool_facts[];

#endif
