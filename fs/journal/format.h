/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The journal's layout in memory, in host byte order: a header, one slot of persistent fields per
 * inode slot, and two halves of records; new records go to one half.
 *
 * The halves are handed out in units. A segment is some units in a row; a single writer appends
 * records to a segment. A record is a whole change. The writer stores the record's check last, so a
 * reader ignores a record without a valid check. A part of a record gives the new state of an
 * object, not a difference. So a record may be applied a second time, and a record about an unknown
 * object is ignored: during a checkpoint, records of changes come before the records of the objects
 * that they change. */
#ifndef FS_JOURNAL_FORMAT_H
#define FS_JOURNAL_FORMAT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "fs/core/attribute_schema.h"
#include "fs/core/limits.h"
#include "fs/journal/persistent_fields.h"

#define JOURNAL_MAGIC	0x6c616e72756f6a67ULL /* "gjournal" */
#define JOURNAL_VERSION 3
/* The oldest version that a daemon can take over: without JOURNAL_HANDED_OUT. */
#define JOURNAL_VERSION_MIN  2
#define JOURNAL_HEADER_BYTES (64ULL << 10)
#define JOURNAL_UNIT	     (64ULL << 10)
#define JOURNAL_HALVES	     2
#define JOURNAL_WRITERS	     256
#define JOURNAL_VOLUMES	     (BACKEND_DEVICES_MAX + 1)

/* The state says which half gets new records. If bit 0 is set, a checkpoint is under way, and a
 * reader reads the other half first. A checkpoint advances the state twice. */
enum journal_state {
	JOURNAL_FIRST,
	JOURNAL_FIRST_TO_SECOND,
	JOURNAL_SECOND,
	JOURNAL_SECOND_TO_FIRST,
	JOURNAL_STATES
};

struct journal_header {
	uint64_t magic;
	_Atomic uint32_t version;
	uint32_t n_volumes;
	uint64_t slots; /* the number of inode slots */
	uint64_t half_bytes;
	_Atomic uint64_t state;
	/* Records were lost because no memory was left: do not read this journal. */
	_Atomic uint64_t broken;
	/* Part of every check; another value for each use of the half. */
	uint64_t epoch[JOURNAL_HALVES];
	_Atomic uint64_t units[JOURNAL_HALVES]; /* handed out */
	_Atomic uint32_t generation; /* the highest generation of any inode slot that was freed */
	_Atomic uint32_t compacted;  /* units in use after the last checkpoint; 0: none yet */
	_Atomic uint32_t pages[INODE_SHARDS]; /* where each shard of the inode table ends */
	char volumes[JOURNAL_VOLUMES][48];    /* UUIDs of the GPUs; "host" */
	char backend[16]; /* "cuda"; empty in journals that were begun before this field existed */
	/* Version 2 had no JOURNAL_HANDED_OUT: until the next checkpoint, any chunk may have been
	 * handed out. */
	_Atomic uint32_t all_handed_out;
};
static_assert(sizeof(struct journal_header) <= JOURNAL_HEADER_BYTES, "the header has its room");

/* The persistent fields of an inode slot. Their changes are not logged: the daemon works on the
 * fields in the journal's memory. */
struct journal_slot {
	struct inode_fields inode;
	struct file_fields file;
};

struct journal_segment {
	uint64_t check; /* of the following fields; stored last */
	uint64_t units;
};

/* The outcome that an answer must repeat if the kernel sends the request again. */
enum journal_completed {
	JOURNAL_COMPLETED_NAME = 1,
	JOURNAL_COMPLETED_OPEN = 2,
	JOURNAL_COMPLETED_CLOSE = 4
};

struct journal_record {
	uint64_t check; /* of all following bytes, parts included; stored last; never 0 */
	uint64_t sequence;
	uint64_t request; /* FUSE's unique; 0: no request, or a request that may be done twice */
	uint64_t ino;	  /* the inode to which the request led */
	uint32_t bytes;	  /* of header and parts; a multiple of 8 */
	uint16_t writer;
	uint16_t completed; /* bits of enum journal_completed */
};

enum journal_kind {
	JOURNAL_INODE = 1, /* journal_inode; target. Replaces all that was known of the inode. */
	JOURNAL_OWNER,	   /* journal_owner */
	JOURNAL_VALUES,	   /* journal_values */
	JOURNAL_QUOTA,	   /* journal_quota */
	JOURNAL_XATTR,	   /* journal_xattr; name with NUL, value */
	JOURNAL_XATTR_GONE,
	JOURNAL_NAME, /* journal_name; name */
	JOURNAL_NAME_GONE,
	JOURNAL_QUOTA_DIR, /* journal_quota_dir */
	JOURNAL_OPEN,	   /* journal_open: also other users of the file's memory */
	JOURNAL_KEEP_DATA, /* journal_ino: the inode lost its name to a rename */
	JOURNAL_GONE,	   /* journal_ino */
	JOURNAL_FILE,	   /* journal_file; all extents of the file */
	JOURNAL_EXTENTS,   /* journal_file; more extents of the file */
	JOURNAL_CUT,	   /* journal_cut: the range has no memory any more */
	JOURNAL_REQUEST,   /* journal_request */
	JOURNAL_DIR,	   /* journal_dir */
	/* journal_handed_out; ids. Other processes may have these chunks. No later record changes
	 * that. */
	JOURNAL_HANDED_OUT,
	JOURNAL_KINDS
};

/* The header of each part of a record. */
struct journal_part {
	uint16_t kind;
	uint16_t unused;
	uint32_t bytes; /* with this header, without the padding to a multiple of 8 */
};

/* Bits of journal_inode.flags. */
enum { JOURNAL_IS_COUNTED = 1, JOURNAL_KEEPS_DATA = 2 };

struct journal_inode {
	uint64_t ino;
	uint64_t quota_dir; /* the directory that pays; of a top directory: the root */
	int64_t btime;
	struct attr_values attrs;
	uint32_t mode, uid, gid;
	uint32_t volume; /* index; UINT32_MAX: none */
	uint32_t flags;
	union {			       /* depends on the mode */
		uint32_t target_bytes; /* of a symbolic link, with the NUL */
		uint32_t rdev;	       /* of a device node */
	};
};

enum { JOURNAL_SET_MODE = 1, JOURNAL_SET_UID = 2, JOURNAL_SET_GID = 4 };

struct journal_owner {
	uint64_t ino;
	uint32_t mode, uid, gid;
	uint32_t unused;
};

struct journal_values {
	uint64_t ino;
	struct attr_values attrs;
};

struct journal_quota {
	uint64_t ino;
	uint64_t max_bytes, max_files;
};

struct journal_xattr {
	uint64_t ino;
	uint32_t name_bytes, value_bytes; /* name_bytes with the NUL */
};

struct journal_name {
	uint64_t dir, ino;
	uint64_t cookie;
	uint32_t name_bytes; /* without the NUL */
	uint32_t volume;     /* where the inode is from now on; UINT32_MAX: unchanged */
};

struct journal_quota_dir {
	uint64_t ino, quota_dir;
};

struct journal_dir {
	uint64_t ino;
	uint64_t next_cookie;
};

struct journal_open {
	uint64_t ino;
	uint32_t opens, writers;
	int32_t backing_id;
	uint32_t leases;
	uint32_t keep_data;
	uint32_t unused;
};

struct journal_ino {
	uint64_t ino;
};

struct journal_file {
	uint64_t ino;
	uint64_t object; /* id of the object of a host/ file; 0 */
	uint32_t volume; /* index */
	uint8_t tail_shift, object_shift;
	uint16_t unused;
	uint32_t n_extents, unused_too;
};

struct journal_extent {
	uint64_t offset, bytes;
	uint64_t chunk, into; /* journal_chunk, and journal_into: the offset into the chunk */
};

/* A chunk's id, which is a number of the fdstore, with the chunk's place in higher bits, and a bit
 * for memory that another program allocated. */
#define JOURNAL_PLACE_SHIFT 60
#define JOURNAL_FOREIGN	    (1ULL << 63)

static inline uint64_t journal_chunk(const struct chunk *chunk)
{
	return chunk->id | (uint64_t)chunk->place << JOURNAL_PLACE_SHIFT |
	       (chunk->foreign ? JOURNAL_FOREIGN : 0);
}

static inline bool journal_chunk_is_foreign(uint64_t chunk)
{
	return chunk & JOURNAL_FOREIGN;
}

static inline uint64_t journal_chunk_id(uint64_t chunk)
{
	return chunk & ((1ULL << JOURNAL_PLACE_SHIFT) - 1);
}

static inline enum memory_place journal_chunk_place(uint64_t chunk)
{
	return (enum memory_place)((chunk & ~JOURNAL_FOREIGN) >> JOURNAL_PLACE_SHIFT);
}

/* journal_extent.into. A file may have any part of another program's memory, and the size of the
 * whole chunk, which an import needs, is in the higher bits, in units of CHUNK_ALIGN. */
#define JOURNAL_INTO_BITS 40
#define JOURNAL_INTO_MASK ((1ULL << JOURNAL_INTO_BITS) - 1)

static inline uint64_t journal_into(const struct span *span)
{
	return span->chunk->foreign
		   ? span->offset | span->chunk->bytes / CHUNK_ALIGN << JOURNAL_INTO_BITS
		   : span->offset;
}

static inline uint64_t journal_foreign_bytes(uint64_t into)
{
	return (into >> JOURNAL_INTO_BITS) * CHUNK_ALIGN;
}

struct journal_handed_out {
	uint32_t n_chunks, unused;
};

struct journal_cut {
	uint64_t ino;
	uint64_t from, to;
};

struct journal_request {
	uint64_t request, ino;
	uint32_t completed;
	uint32_t writer; /* of the record; or JOURNAL_EARLIER and above */
};

/* Values of journal_request.writer for requests of earlier daemons: JOURNAL_EARLIER for the daemon
 * before the last daemon, JOURNAL_EARLIER + 1 for the daemon before that daemon, and so on. The
 * kernel may not have received the answers to these requests, either. */
#define JOURNAL_EARLIER	    JOURNAL_WRITERS
#define JOURNAL_EARLIER_MAX 32
/* A journal_request with this writer makes all earlier journal_request parts invalid, because those
 * requests belong to another mount, and their numbers may come again. */
#define JOURNAL_FORGET UINT32_MAX

static inline unsigned journal_newest(uint64_t state)
{
	return (unsigned)((state + 1) / 2 % JOURNAL_HALVES);
}

static inline bool journal_has_older(uint64_t state)
{
	return state & 1;
}

static inline uint64_t journal_align(uint64_t bytes)
{
	return (bytes + 7) & ~7ULL;
}

static inline bool journal_version_is_known(uint32_t version)
{
	return version >= JOURNAL_VERSION_MIN && version <= JOURNAL_VERSION;
}

uint64_t journal_segment_check(const struct journal_segment *segment, uint64_t epoch);
/* The caller has checked record->bytes. */
uint64_t journal_record_check(const struct journal_record *record, uint64_t epoch);

#endif
