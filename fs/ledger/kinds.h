/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The kinds of resources that the ledger counts, one row each. */
#ifndef FS_LEDGER_KINDS_H
#define FS_LEDGER_KINDS_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/pool.h"

struct fs;

enum ledger_kind {
	LEDGER_METADATA, /* bytes of the daemon's own memory, which other kinds cost too */
	LEDGER_LEASES,
	LEDGER_CONNECTIONS, /* to the sharing socket */
	LEDGER_PROCESSES,   /* that received descriptors of GPU memory and live */
	LEDGER_RECEIPTS,    /* pairs of such a process and a file */
	LEDGER_TEXTS,	    /* open files of .gpumem/ */
	LEDGER_TEXT_BYTES,  /* bytes of these open files */
	LEDGER_HOST_FILES,  /* files of host/ that have memory */
	LEDGER_HOST_TMPFS,  /* of these, with a tmpfs of their own: below a quota */
	LEDGER_DESCRIPTORS, /* of the memory of files, in units of 1 / LEDGER_DESCRIPTOR */
	LEDGER_BYTES,	    /* of files, in all places and in host/ */
	LEDGER_GPU,	    /* bytes in PLACE_GPU; the other places follow in order */
	LEDGER_SPILL_HOST,
	LEDGER_SPILL_DISK,
	LEDGER_HELD,	    /* bytes of these that files gave up and processes may still have */
	LEDGER_HELD_CHUNKS, /* the number of chunks of these */
	LEDGER_KINDS
};

/* The limits of all ordinary users together where the resource has a slot in memory that outlives
 * the daemon: fifteen sixteenths of the slots. Processes have the limit of connections. */
#define LEDGER_CONNECTIONS_OF_ALL (15U << 12)
#define LEDGER_LEASES_OF_ALL	  (15U << 16)
#define LEDGER_HELD_CHUNKS_OF_ALL (15U << 16)

/* A chunk costs a descriptor. Blocks of a shared chunk count for their part of the chunk. */
#define LEDGER_DESCRIPTOR (CHUNK_ALIGN / POOL_BLOCK_MIN)
static inline uint64_t ledger_span_descriptors(uint64_t span_bytes)
{
	return (span_bytes < CHUNK_ALIGN ? span_bytes : CHUNK_ALIGN) / POOL_BLOCK_MIN;
}

struct ledger_row {
	const char *key;    /* in .gpumem/users */
	const char *name;   /* as a warning says it */
	const char *remedy; /* the option that raises the limit, or "" */
	int error;	    /* what a user at the limit gets, as -errno */
	bool warn_once;	    /* one warning until the user gives something back */
	/* The limit for one ordinary user; NULL: of_one. */
	uint64_t (*limit)(const struct fs *fs);
	uint64_t of_one;
	/* The limit for all ordinary users together; NULL: none. */
	uint64_t (*limit_of_all)(const struct fs *fs);
	int error_of_all; /* what a user gets there, as -errno; 0: -ENFILE */
	bool unlimited;	  /* only counted */
	uint32_t unit;	  /* how many of the count make one of what name says; 0: 1 */
	uint32_t cost;	  /* bytes of LEDGER_METADATA for each, approximately */
};

/* The count as the row's name counts, rounded up. */
static inline uint64_t ledger_named(const struct ledger_row *row, uint64_t count)
{
	return row->unit ? (count + row->unit - 1) / row->unit : count;
}

extern const struct ledger_row ledger_rows[LEDGER_KINDS];

/* The limit for one ordinary user, and for all together; UINT64_MAX: none. */
uint64_t ledger_limit(const struct fs *fs, enum ledger_kind kind);
uint64_t ledger_limit_of_all(const struct fs *fs, enum ledger_kind kind);

#endif
