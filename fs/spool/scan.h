/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Restores the spool's files at mount: scan.c finds the records and data on the disk, rebuild.c
 * makes a tree of the records. */
#ifndef FS_SPOOL_SCAN_H
#define FS_SPOOL_SCAN_H

#include "fs/spool/internal.h"

/* One record, or a data file without a readable record. */
struct spool_found {
	uint64_t id;
	struct spool_record record; /* id 0: the record cannot be read */
	mode_t mode;		    /* of the record; 0 */
	/* One of the names; allocated in the record, or in the inode's saved record. */
	struct spool_name first;
	const char *damage;  /* why the bytes cannot be served; NULL: they can */
	struct inode *inode; /* holds a reference; NULL: there is no inode yet, or its volume is not
				in this mount */
	int64_t atime, mtime, ctime;
	bool data, staged; /* which files exist in data/ */
	bool needed;	   /* the file is wanted, or the directory is above a wanted file */
	bool reached;	   /* placed in the tree, or on a GPU that this mount does not have */
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
	struct spool_found *found; /* sorted by id */
	size_t count, sorted;
	struct spool_entry *entries; /* sorted by directory and name, the newest record first */
	size_t n_entries;
	struct spool_paths paths; /* read only if a record is damaged */
	uint64_t files, elsewhere;
};

struct spool_found *spool_found_at(const struct spool_restoring *restoring, uint64_t id);
/* Gives the record to the inode and takes over found->record. */
int spool_attach(struct spool_restoring *restoring, struct spool_found *found, struct inode *inode,
		 enum inode_residency residency);

/* Lists all names and marks the records that are needed: all except directories without any needed
 * entry. */
int spool_list(struct spool_restoring *restoring);
/* The volume of a top directory's name; NULL: this mount does not have the volume. */
struct volume *spool_volume(struct fs *fs, const char *name);

/* Creates an inode for each needed record without an inode. */
int spool_rebuild(struct spool_restoring *restoring);

#endif
