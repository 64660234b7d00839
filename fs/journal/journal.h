/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The journal: each change of metadata is one record in memory that outlives the daemon, from which
 * the next one makes the same tree (restore.h). What is in it, and the rules by which a crash
 * between any two instructions leaves the old state or the new one: journal_format.h.
 *
 * A record is appended under the locks under which its change is made, before anybody else can see
 * the change; and before memory that it takes from a file can become another's. Appending takes one
 * more lock, the thread's own, and never fails: where no memory can be had for it the journal
 * is marked as not to be read, with a line in the log. journal_room, called before the locks, keeps
 * that from happening.
 *
 * A daemon without recovery has no journal: all that takes one takes NULL and then does nothing. */
#ifndef FS_JOURNAL_JOURNAL_H
#define FS_JOURNAL_JOURNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "common/cacheline.h"

#include "fs/journal/format.h"
#include "fs/keeper/fdstore.h"

#define JOURNAL_RECENT 8

/* Where the threads of one number append. */
struct journal_writer {
	_Alignas(CACHELINE_ALIGN) pthread_mutex_t lock;
	char *at, *end; /* what is left of its segment; NULL: it has none */
	uint64_t epoch; /* of the area that the segment is in */
	/* The latest requests, for compaction: their answers may not be out yet. */
	struct journal_request recent[JOURNAL_RECENT];
	unsigned n_recent;
};

struct journal {
	struct fdstore_ops holder;
	struct journal_header *header; /* the mapping begins here */
	struct journal_slot *slots;
	char *halves[JOURNAL_HALVES];
	size_t bytes;
	int fd;
	int lock_fd;		   /* the same, for the lock on it; -1: there is none */
	_Atomic uint64_t sequence; /* the next */
	_Atomic uint64_t last_id;  /* of chunks and objects */
	struct journal_writer writers[JOURNAL_WRITERS];
	/* What had been done when the last daemon ended, sorted by request. */
	struct journal_request *done;
	size_t n_done;
	/* Compaction, by a thread of its own: journal_compact.c. */
	pthread_mutex_t turning; /* held by who compacts; before lock */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	_Atomic uint64_t limit; /* units of the area being filled that call for it */
	bool wanted, ending;	/* lock */
	bool running;		/* thread is to be joined */
	pthread_t thread;
	/* For tests: called between any two stores that a crash could come between. */
	void (*fault)(void *of);
	void *fault_of;
};

/* A new one for so many inodes at most, or that of an earlier daemon: 0, or -errno with a line in
 * the log. -EUCLEAN: it cannot be read; -EBUSY: another daemon is at it. The fd is the journal's on
 * success. */
int journal_new(const struct fdstore_ops *holder, uint64_t inodes, struct journal **journal);
int journal_adopt(const struct fdstore_ops *holder, int fd, struct journal **journal);
/* Leaves the memory to who holds it. */
void journal_close(struct journal *journal);

/* The figures of an inode slot. grow backs those of the slots from first on: 0 or -ENOSPC. */
int journal_grow(struct journal *journal, uint32_t first, uint32_t slots);
struct journal_slot *journal_slot(struct journal *journal, uint32_t slot);

/* Before the locks of a change that takes memory: 0, or -ENOSPC where the journal has no room for
 * it. May wait for a compaction. */
int journal_room(struct journal *journal);
/* Does not wait. */
int journal_room_now(struct journal *journal);

/* One part of a record: what is fixed, and up to two tails. */
struct journal_piece {
	enum journal_kind kind;
	uint32_t bytes;
	const void *fixed;
	struct {
		const void *data;
		uint32_t bytes;
	} tail[2];
};

/* did: bits of enum journal_drc_add for the thread's request, which led to ino; 0: nothing that
 * must not be done again. */
void journal_append(struct journal *journal, const struct journal_piece *pieces, unsigned n,
		    unsigned did, uint64_t ino);

/* The request that the calling thread is at: its unique, bit 63 as the kernel set it; 0: none. */
void journal_set_request(uint64_t unique);
/* Notes again what had been done when the last daemon ended: the next one may be asked as well. Or,
 * on another mount, that nothing had. */
void journal_drc_carry(struct journal *journal);
void journal_drc_forget(struct journal *journal);
/* Whether that request came a second time and had been done the first: with what it led to. */
bool journal_drc_find(const struct journal *journal, struct journal_request *done);

/* For compaction and restoring: what lies in the areas, the older one first; each record is whole,
 * its parts are not looked at. By sequence. */
struct journal_list {
	const struct journal_record **at;
	size_t count;
};
int journal_read(const struct journal *journal, struct journal_list *list);
/* The records of one area: for journal_read and fuzzing. In the order of the area. */
int journal_read_half(const char *half, uint64_t units, uint64_t epoch, struct journal_list *list);
int journal_sort(struct journal_list *list);

/* A part, checked as what nobody can be trusted to have written: lengths agree, names are names. */
struct journal_view {
	enum journal_kind kind;
	const void *fixed;
	const char *tail; /* aligned to 8 */
	uint32_t tail_bytes;
};
/* The part at offset (0: the first) and the next one's offset; 0: the end, or it is none. */
uint32_t journal_view(const struct journal_record *record, uint32_t offset,
		      struct journal_view *view);

/* What should be in it could not be told: as where there is no memory for it. */
void journal_fail(struct journal *journal, uint64_t bytes);

/* Ids below are for what the volumes need themselves. */
#define JOURNAL_FIRST_ID 16

/* A descriptor for the next daemon: its id, or 0 where it could not be held. */
uint64_t journal_hold(struct journal *journal, enum fdstore_kind kind, int fd);
void journal_drop(struct journal *journal, enum fdstore_kind kind, uint64_t id);

/* Compaction: from begin to end records go to the other area, which is read after the first; in
 * between all that there is must be appended to it. -EBUSY: the other one is in use, because the
 * last daemon ended between the two; then the same without begin is what is to be done. */
int journal_rotate_begin(struct journal *journal);
void journal_rotate_end(struct journal *journal);

#endif
