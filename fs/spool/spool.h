/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* persist=disk: files whose bytes and attributes are also on a disk, in the spool directory, and
 * are brought back by the next mount. gpumemfs-spool(5) says how the directory looks.
 *
 * What is saved replaces what was there at once or not at all, whenever the daemon or the machine
 * dies. What is brought back is checked against its hashes: a file that is not as it was saved has
 * an error for a content, and its copy stays as it is until the file is removed.
 *
 * Without -o spool= there is none: fs->spool is NULL, and all that takes a struct fs does nothing.
 */
#ifndef FS_SPOOL_SPOOL_H
#define FS_SPOOL_SPOOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/core/fs.h"
#include "fs/tree/inode.h"

struct inode;

/* --- the mount */

/* Whether the directory can be a spool, as far as can be said while another daemon uses it: 0, or
 * -errno after a line in the log. */
int spool_check(const struct options *options);
/* After the tree was made: takes the directory, waits for a daemon that is still saving to it, and
 * brings back names and attributes. 0, or -errno after a line in the log. */
int spool_open(struct fs *fs);
/* Requests are served: names are followed from here on, and with restore=now bytes brought back. */
void spool_start(struct fs *fs);
/* No request is in flight: saves all that was not. */
void spool_end(struct fs *fs);
void spool_close(struct fs *fs); /* before the tree goes */

/* --- saving */

struct spool_saved {
	uint64_t files, bytes; /* that had to be written */
	uint64_t failed;       /* files that could not be saved */
	uint64_t first_failed; /* inode number of the first of them; 0 */
};

/* One file, with what is above it: 0 or -errno, with a line in the log where somebody must act. A
 * directory: with the names in it of what was saved before. */
int spool_save(struct fs *fs, struct inode *inode);
/* All below a directory, by several threads; NULL: everything. The first error. */
int spool_save_below(struct fs *fs, struct inode *dir, struct spool_saved *saved);

/* Bytes of [from, from + bytes) are other ones now: before the answer that says so. */
void spool_mark_dirty(struct inode *inode, uint64_t from, uint64_t bytes);

/* --- figures, for .gpumem/ */

struct spool_counters {
	uint64_t saves;	      /* records written */
	uint64_t saved_bytes; /* of data, written to the disk */
	uint64_t errors;      /* saves that failed */
	uint64_t fetched_bytes;
	uint64_t damaged; /* files that could not be brought back */
	int last_error;	  /* errno of the last save that failed; 0 */
};
struct spool_counters spool_counters(struct fs *fs);

#endif
