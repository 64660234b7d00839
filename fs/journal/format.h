/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The journal as it lies in memory, in host byte order: a header, a slot of figures per inode slot,
 * and two areas of records, of which one is being filled.
 *
 * An area is handed out in units; a segment of one or more is one writer's, who appends records to
 * it. A record is one change, all of its parts or none: it counts once its check is there, which is
 * stored last. Parts give the new state of what they name and not a difference, so that a record
 * may be applied again to what has it already, and one about something unknown is passed over:
 * while an area is compacted, records of changes come before the state that has them. */
#ifndef FS_JOURNAL_FORMAT_H
#define FS_JOURNAL_FORMAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "fs/core/attribute_schema.h"
#include "fs/core/limits.h"
#include "fs/journal/persistent_fields.h"

#define JOURNAL_MAGIC	     0x6c616e72756f6a67ULL /* "gjournal" */
#define JOURNAL_VERSION	     2
#define JOURNAL_HEADER_BYTES (64ULL << 10)
#define JOURNAL_UNIT	     (64ULL << 10)
#define JOURNAL_HALVES	     2
#define JOURNAL_WRITERS	     256
#define JOURNAL_VOLUMES	     (BACKEND_DEVICES_MAX + 1)

/* Which area is filled, and whether the other one is to be read before it (bit 0). Compaction goes
 * through the four in turn. */
enum journal_state {
	JOURNAL_FIRST,
	JOURNAL_FIRST_TO_SECOND,
	JOURNAL_SECOND,
	JOURNAL_SECOND_TO_FIRST,
	JOURNAL_STATES
};

struct journal_header {
	uint64_t magic;
	uint32_t version, n_volumes;
	uint64_t slots; /* how many */
	uint64_t half_bytes;
	_Atomic uint64_t state;
	_Atomic uint64_t broken;	/* records were lost for want of memory: not to be read */
	uint64_t epoch[JOURNAL_HALVES]; /* part of every check, another for each use */
	_Atomic uint64_t units[JOURNAL_HALVES]; /* handed out */
	_Atomic uint32_t generation;		/* the highest of any slot that was given back */
	_Atomic uint32_t compacted;		/* units after the last compaction; 0: none yet */
	_Atomic uint32_t pages[INODE_SHARDS];	/* of the inode table: where each shard's end */
	char volumes[JOURNAL_VOLUMES][48];	/* UUIDs; "host" */
};

/* Figures are not logged: they are where they are used. */
struct journal_slot {
	struct inode_fields inode;
	struct file_fields file;
};

struct journal_segment {
	uint64_t check; /* of what follows; stored last */
	uint64_t units;
};

/* What of the answer must be known if the request comes again. */
enum journal_drc_add { JOURNAL_DID_NAME = 1, JOURNAL_DID_OPEN = 2, JOURNAL_DID_CLOSE = 4 };

struct journal_record {
	uint64_t check; /* of what follows, parts included; stored last; never 0 */
	uint64_t sequence;
	uint64_t request; /* FUSE's unique; 0: none, or it may be done again */
	uint64_t ino;	  /* what the request led to */
	uint32_t bytes;	  /* with this header; a multiple of 8 */
	uint16_t writer;
	uint16_t did; /* bits of enum journal_drc_add */
};

enum journal_kind {
	JOURNAL_INODE = 1, /* journal_inode; its target. All that it had else is gone. */
	JOURNAL_OWNER,	   /* journal_owner */
	JOURNAL_VALUES,	   /* journal_values */
	JOURNAL_QUOTA,	   /* journal_quota */
	JOURNAL_XATTR,	   /* journal_xattr; name with NUL, value */
	JOURNAL_XATTR_GONE,
	JOURNAL_NAME, /* journal_name; name */
	JOURNAL_NAME_GONE,
	JOURNAL_HOME,	 /* journal_quota_dir */
	JOURNAL_OPEN,	 /* journal_open: also what else keeps a file's memory */
	JOURNAL_KEPT,	 /* journal_ino: lost its name to a rename */
	JOURNAL_GONE,	 /* journal_ino */
	JOURNAL_FILE,	 /* journal_file; extents: all that it has */
	JOURNAL_EXTENTS, /* journal_file; extents that it has besides */
	JOURNAL_CUT,	 /* journal_cut: no memory there any more */
	JOURNAL_DONE,	 /* journal_request */
	JOURNAL_DIR,	 /* journal_dir */
	JOURNAL_KINDS
};

/* Before each part of a record. */
struct journal_part {
	uint16_t kind;
	uint16_t unused;
	uint32_t bytes; /* with this header, without what fills up to a multiple of 8 */
};

/* Bits of journal_inode.flags. */
enum { JOURNAL_IS_COUNTED = 1, JOURNAL_IS_KEPT = 2 };

struct journal_inode {
	uint64_t ino;
	uint64_t quota_dir; /* the directory that pays; above a top directory: the root */
	int64_t btime;
	struct attr_values attrs;
	uint32_t mode, uid, gid;
	uint32_t volume; /* index; UINT32_MAX: none */
	uint32_t flags;
	union {			       /* by the mode */
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
	uint32_t name_bytes; /* without NUL */
	uint32_t volume;     /* where the inode is from now on; UINT32_MAX: where it was */
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
	uint32_t kept;
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
	uint64_t chunk, into; /* its id, and where in it */
};

struct journal_cut {
	uint64_t ino;
	uint64_t from, to;
};

struct journal_request {
	uint64_t request, ino;
	uint32_t did;
	uint32_t writer; /* or who it was told by: JOURNAL_EARLIER and more */
};

/* Of a daemon that ended before the last one: so many before, up to JOURNAL_EARLIER_MAX. Its answer
 * may not be out even now. */
#define JOURNAL_EARLIER	    JOURNAL_WRITERS
#define JOURNAL_EARLIER_MAX 32
/* Requests before this are another mount's, whose numbers may come again. */
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

uint64_t journal_segment_check(const struct journal_segment *segment, uint64_t epoch);
/* record->bytes is right. */
uint64_t journal_record_check(const struct journal_record *record, uint64_t epoch);

#endif
