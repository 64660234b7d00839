/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The record of one file, directory or link in the spool, in memory and as the text that
 * gpumemfs-spool(5) describes. Uses neither files nor inodes. Any program that can write to the
 * spool's disk may have written the text, so the reader trusts no part of the text. */
#ifndef FS_SPOOL_RECORD_RECORD_H
#define FS_SPOOL_RECORD_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/core/attribute_schema.h"

/* The unit of hashing, comparing and writing, in bytes. */
#define SPOOL_BLOCK (1ULL << 20)

/* The text: the head line with the format's number, a JSON object, and a line with the XXH3 of all
 * before that line. Texts of format 1, which had no JSON, are refused. */
#define SPOOL_FORMAT 2
#define SPOOL_HEAD   "gpumem-spool "
#define SPOOL_SUM    "sum "
/* The last line: 16 digits and the end of the line. */
#define SPOOL_SUM_BYTES (sizeof(SPOOL_SUM) - 1 + 16 + 1)

/* Larger ids, versions and sequences are damage: adding to such a number could overflow. */
#define SPOOL_NUMBER_MAX ((uint64_t)INT64_MAX / 2)

/* A stretch of the file with data; the rest is holes. */
struct spool_run {
	uint64_t from, bytes;
};

/* XXH3 of the block's bytes up to the end of the file, holes counting as zeroes. */
struct spool_block {
	uint64_t index, hash;
	bool is_fresh; /* in the staged file of this version, not yet in the data */
};

struct spool_name {
	uint64_t dir; /* id of the directory's record; 0: the top of the mount */
	char *name;
};

struct xattr;

struct spool_record {
	uint64_t id;	  /* never 0 */
	uint64_t version; /* of this record: each save adds one */
	/* Over all saves of the spool: of two records the newer has the higher. */
	uint64_t sequence;
	mode_t mode; /* with the file type */
	dev_t rdev;  /* of a device node */
	uid_t uid;
	gid_t gid;
	int64_t atime, mtime, ctime, btime; /* nanoseconds since the epoch */
	struct attr_values attrs;
	uint64_t max_bytes, max_files; /* quotas of a directory; UINT64_MAX: none */
	char *target;		       /* of a symbolic link; else NULL */
	char *device;		       /* UUID of a GPU, for its top directory; else NULL */
	struct xattr *xattrs;
	struct spool_name *names;
	size_t n_names;
	uint64_t size;
	struct spool_run *runs; /* ascending, not touching */
	size_t n_runs;
	struct spool_block *blocks; /* ascending; exactly the blocks that the runs touch */
	size_t n_blocks;
};

void spool_record_free(struct spool_record *record);
int spool_record_add_name(struct spool_record *record, uint64_t dir, const char *name);
int spool_record_add_run(struct spool_record *record, uint64_t from, uint64_t bytes);
/* Replaces record->blocks by the blocks that the runs touch, without hashes. */
int spool_record_find_blocks(struct spool_record *record);
/* NULL: the block is a hole. */
struct spool_block *spool_record_block(const struct spool_record *record, uint64_t index);
/* The bytes of a block up to the end of the file. */
size_t spool_block_bytes(const struct spool_record *record, uint64_t index);

/* The text of a record, allocated: the length, or -ENOMEM. */
ssize_t spool_record_write(const struct spool_record *record, char **text);
/* A hash over the fields that make a save necessary. SPOOL_BUT_TIMES leaves mtime and ctime out: a
 * directory is not saved again for each file created in the directory. */
enum spool_sameness { SPOOL_BUT_TIMES, SPOOL_TIMES };
uint64_t spool_record_hash(const struct spool_record *record, enum spool_sameness sameness);

/* Reads a text. 0; -EUCLEAN: the text is damaged or impossible, and `reason` names the damaged
 * part; -EPROTO: another version of the format; -ENOMEM. After an error nothing is allocated. */
int spool_record_read(const char *text, size_t length, struct spool_record *record,
		      const char **reason);

#endif
