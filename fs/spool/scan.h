/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What spool_restore.c finds on the disk and spool_rebuild.c makes a tree of. */
#ifndef FS_SPOOL_SCAN_H
#define FS_SPOOL_SCAN_H

#include "fs/spool/internal.h"

/* One record, or data without a good one. */
struct spool_found {
	uint64_t id;
	struct spool_record record; /* id 0: it cannot be read */
	mode_t mode;		    /* the record's; 0 */
	struct spool_name first;    /* one of its names; the record's, or the inode's then */
	const char *damage;	    /* why it is not to be served; NULL: it is */
	struct inode *inode;	    /* with a reference; NULL: none yet, or none here */
	int64_t atime, mtime, ctime;
	bool data, staged; /* what is there of it in data/ */
	bool needed;	   /* wanted, or above what is */
	bool reached;	   /* it has a place, if only on a GPU that is not here */
};

/* One name of a record. */
struct spool_entry {
	uint64_t dir, sequence;
	const char *name;
	struct spool_found *found;
};

struct spool_restoring {
	struct fs *fs;
	struct spool *spool;
	struct spool_found *found; /* by id */
	size_t count, sorted;
	struct spool_entry *entries; /* by directory, name, and the newest first */
	size_t n_entries;
	struct spool_paths paths; /* where something is damaged */
	uint64_t files, elsewhere;
};

struct spool_found *spool_found_at(const struct spool_restoring *restoring, uint64_t id);
/* The inode is the record's from here on, which is taken over. */
int spool_attach(struct spool_restoring *restoring, struct spool_found *found, struct inode *inode,
		 enum inode_residency residency);

/* Lists all names, and finds out which records are needed: all but directories that are there only
 * for what is gone. */
int spool_list(struct spool_restoring *restoring);
/* The volume of a top directory's name; NULL: it is not in this mount. */
struct volume *spool_volume(struct fs *fs, const char *name);

/* spool_rebuild.c: makes all that is needed and has no inode yet. */
int spool_rebuild(struct spool_restoring *restoring);

#endif
