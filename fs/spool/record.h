/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the spool says of one file, directory or link: a text, gpumemfs-spool(5). Pure: no files,
 * no inodes. Whoever can write to the spool's disk may have written it, so reading believes
 * nothing. */
#ifndef FS_SPOOL_RECORD_H
#define FS_SPOOL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/core/attribute_schema.h"

/* The unit that is hashed, compared and written, in bytes. */
#define SPOOL_BLOCK (1ULL << 20)

#define SPOOL_FORMAT 1

/* A stretch of the file that has data; the rest are holes. */
struct spool_run {
	uint64_t from, bytes;
};

/* XXH3 of the block's bytes as far as the file reaches, zeroes where it has a hole in it. */
struct spool_block {
	uint64_t index, hash;
	bool fresh; /* in the staged file of this version, not yet in the data */
};

struct spool_name {
	uint64_t dir; /* id of the directory's record; 0: the top of the mount */
	char *name;
};

struct xattr;

struct spool_record {
	uint64_t id;	   /* never 0 */
	uint64_t version;  /* of this record: one more with each save */
	uint64_t sequence; /* of all saves of the spool: of two records, which is the newer */
	mode_t mode;	   /* with the type */
	dev_t rdev;	   /* of a device node */
	uid_t uid;
	gid_t gid;
	int64_t atime, mtime, ctime, btime; /* nanoseconds since the epoch */
	struct attr_values attrs;
	uint64_t max_bytes, max_files; /* quotas of a directory; UINT64_MAX: none */
	char *target;		       /* of a symbolic link; else NULL */
	char *device;		       /* UUID of a GPU's top directory; else NULL */
	struct xattr *xattrs;
	struct spool_name *names;
	size_t n_names;
	uint64_t size;
	struct spool_run *runs; /* ascending, apart */
	size_t n_runs;
	struct spool_block *blocks; /* ascending; those that the runs touch, and no others */
	size_t n_blocks;
};

void spool_record_free(struct spool_record *record);
int spool_record_add_name(struct spool_record *record, uint64_t dir, const char *name);
int spool_record_add_run(struct spool_record *record, uint64_t from, uint64_t bytes);
/* The blocks that the runs touch, without their hashes; what was there goes. */
int spool_record_find_blocks(struct spool_record *record);
/* NULL: that block is a hole. */
struct spool_block *spool_record_block(const struct spool_record *record, uint64_t index);
/* Bytes of a block as far as the file reaches. */
size_t spool_block_bytes(const struct spool_record *record, uint64_t index);

/* The record as text, allocated; its length; or -ENOMEM. */
ssize_t spool_record_write(const struct spool_record *record, char **text);
/* What two records must have in common for the second to need no saving. With SPOOL_TIMES the
 * times that programs see count, without them a directory need not be saved for each file in it. */
enum spool_sameness { SPOOL_BUT_TIMES, SPOOL_TIMES };
uint64_t spool_record_hash(const struct spool_record *record, enum spool_sameness sameness);

/* 0; -EUCLEAN: the text is damaged or says what cannot be, and why is a word about it; -EPROTO: of
 * a version that this program does not read; -ENOMEM. An error leaves nothing allocated. */
int spool_record_read(const char *text, size_t length, struct spool_record *record,
		      const char **why);

#endif
