/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of ranges, and its lock. A thread that asks the daemon for a lease, or ends a lease,
 * does not hold the lock: the daemon may be waiting for a recall, which needs the lock. */
#ifndef CLIENT_PRELOAD_RANGE_H
#define CLIENT_PRELOAD_RANGE_H

#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "client/preload/slot.h"

/* The result of one call of mmap: a lease, and for a GPU file the import of its memory. */
struct mapping {
	gpumem *file;
	struct slot_identity identity;
	bool on_gpu;
	gpumem *storing; /* the lease for stores: file itself, or another one. NULL: none */
	bool stuck;	 /* another mapping took its place in the library's mapping: never unmap */
	unsigned ranges;
	struct mapping *next; /* of those that wait for their end */
};

struct range {
	char *start;
	size_t bytes; /* whole pages */
	uint64_t offset;
	struct mapping *mapping;
	int protection;
	bool shared, may_write;
	/* The kernel's mapping stands at the addresses, and shows the page cache, while the lease
	 * has a read delegation. Else the file's memory itself. */
	bool cached;
	bool torn; /* cached, and parts may be the memory: an exchange failed, and failed again */
};

/* ranges_unlock also ends mappings and refuses files that had to wait: mapping_end,
 * range_refuse_file. errno stays. */
void ranges_lock(void);
void ranges_unlock(void);
static inline void ranges_unlock_scope(const int *unused)
{
	(void)unused;
	ranges_unlock();
}
/* From here to the end of the scope. */
#define RANGES_LOCKED()                                                                            \
	int locked_ __attribute__((cleanup(ranges_unlock_scope), unused)) = (ranges_lock(), 0)
/* In a child of fork(2), which has inherited the table and the lock. */
void ranges_forked(void);

/* Ends the leases of a mapping without ranges, once the lock is given up. */
void mapping_end(struct mapping *mapping);
/* Calls slots_refuse for a file, once the lock is given up. */
void range_refuse_file(const struct slot_identity *identity);

/* All functions below under the lock; this one also without. */
unsigned range_count(void);
struct range *range_at(unsigned i);
/* Whether a range is that file's memory itself. */
bool range_is_direct_of(const struct slot_identity *identity);
/* Makes room for n more ranges, so that range_add and range_split cannot fail: 0 or -ENOMEM. */
int range_reserve(unsigned n);
void range_add(const struct range *range);
/* Splits the range that crosses the address, if there is such a range. */
void range_split(const char *address);
/* Removes the i-th range; the last range takes its number. A mapping ends with its last range. */
void range_remove(unsigned i);

/* To whole pages. */
static inline size_t range_round_up(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

static inline bool range_overlaps(const struct range *range, const char *start, size_t bytes)
{
	return range->start < start + bytes && start < range->start + range->bytes;
}

#endif
