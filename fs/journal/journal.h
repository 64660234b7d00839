/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The journal: an append-only log of changes to metadata, in memory that outlives the daemon, from
 * which the next daemon builds the same tree (fs/recovery/restore.h). fs/journal/format.h has the
 * layout, and the rules by which a crash between any two instructions leaves either the old state
 * or the new one.
 *
 * Append a change's record while holding the locks of the change, before any other thread can see
 * the change, and before memory that the change frees can be allocated again. journal_append takes
 * a further lock, the calling writer's, and never fails: if there is no memory for the record, the
 * journal is marked as unreadable, with a line in the log. To avoid that, call journal_room before
 * taking the locks.
 *
 * A daemon without recovery has no journal: all functions accept NULL, which has no effect. */
#ifndef FS_JOURNAL_JOURNAL_H
#define FS_JOURNAL_JOURNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "common/background.h"
#include "common/cacheline.h"

#include "fs/journal/format.h"
#include "fs/keeper/fdstore.h"

#define JOURNAL_RECENT 8

/* Where a few threads append. Each thread has a writer; a writer may have several threads. */
struct journal_writer {
	_Alignas(CACHELINE_ALIGN) pthread_mutex_t lock;
	char *at, *end; /* the rest of the writer's segment; NULL: no segment */
	uint64_t epoch; /* of the segment's half */
	/* The writer's latest requests, which a checkpoint repeats: their answers may not have been
	 * sent. */
	struct journal_request recent[JOURNAL_RECENT];
	unsigned n_recent;
};

struct journal {
	struct fdstore_ops fdstore;
	struct journal_header *header; /* the start of the mapping */
	struct journal_slot *slots;
	char *halves[JOURNAL_HALVES];
	size_t bytes;
	int fd;
	int lock_fd;		   /* a second open file of fd, for flock; -1: none */
	_Atomic uint64_t sequence; /* the next record's number */
	_Atomic uint64_t last_id;  /* the highest id of a chunk or of an object of host/ */
	bool rotation_raised;	   /* the checkpoint that is under way began after journal_raise */
	bool adopted;		   /* journal_adopt made the struct */
	atomic_bool is_left;	   /* journal_leave */
	struct journal_writer writers[JOURNAL_WRITERS];
	/* The requests that earlier daemons had completed, sorted by number: the duplicate request
	 * cache. */
	struct journal_request *drc;
	size_t n_drc;
	/* Checkpoints are made by a thread of their own: fs/recovery/checkpoint.c. */
	pthread_mutex_t checkpoint_lock; /* held during a checkpoint; taken before lock */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	_Atomic uint64_t limit; /* units in use from which on a checkpoint is wanted */
	bool checkpoint_wanted; /* under lock */
	struct background checkpointer;
	/* For tests: called between stores, at each point where a crash would leave another state.
	 */
	void (*fault)(void *of);
	void *fault_of;
};

/* journal_new makes a journal for at most this many inodes; journal_adopt takes over the journal of
 * an earlier daemon. 0, or -errno after a line in the log. -EUCLEAN: the journal cannot be read;
 * -EBUSY: another daemon uses the journal. On success fd is the journal's. */
int journal_new(const struct fdstore_ops *fdstore, uint64_t inodes, struct journal **journal);
int journal_adopt(const struct fdstore_ops *fdstore, int fd, struct journal **journal);
/* This daemon cannot start: if the journal is an earlier daemon's, nothing is appended from here
 * on, and no descriptor is dropped, so that the next daemon finds the files. NULL: no effect. */
void journal_leave(struct journal *journal);
bool journal_is_left(const struct journal *journal);
/* Whether any chunk in the journal may have been handed out, because earlier daemons did not record
 * that. */
bool journal_all_handed_out(const struct journal *journal);
/* A journal of an earlier version gets no records that this version does not know, so that the
 * earlier program can take the journal back if this daemon ends before it serves. journal_raise
 * ends that: from here on earlier programs refuse the journal. */
bool journal_is_raised(const struct journal *journal);
void journal_raise(struct journal *journal);
/* Unmaps the journal; the memory lives as long as its descriptor is held. */
void journal_close(struct journal *journal);

/* The persistent fields of inode slots. journal_grow has the kernel back the fields of some slots
 * with memory: 0 or -ENOSPC. */
int journal_grow(struct journal *journal, uint32_t first, uint32_t slots);
struct journal_slot *journal_slot(struct journal *journal, uint32_t slot);

/* Call before taking the locks of a change that needs memory: 0, or -ENOSPC if the journal has no
 * room. May wait for a checkpoint. */
int journal_room(struct journal *journal);
/* As journal_room, without waiting. */
int journal_room_now(struct journal *journal);

/* A part of a record: a fixed struct and up to two tails. */
struct journal_piece {
	enum journal_kind kind;
	uint32_t bytes;
	const void *fixed;
	struct {
		const void *data;
		uint32_t bytes;
	} tail[2];
};

/* The request that a record completes. */
struct journal_cause {
	uint64_t request; /* FUSE's unique, with bit 63 set by the kernel if sent again; 0: none */
	unsigned completed; /* bits of enum journal_completed */
	uint64_t ino;	    /* the inode to which the request led */
};

/* Appends one record. cause: NULL without a request, or for a request that may be done twice. */
void journal_append(struct journal *journal, const struct journal_piece *pieces, unsigned n,
		    const struct journal_cause *cause);

/* The duplicate request cache. carry logs the requests of earlier daemons again, because the next
 * daemon may still receive the same requests. forget, for another mount, invalidates all requests.
 */
void journal_drc_carry(struct journal *journal);
void journal_drc_forget(struct journal *journal);
/* Whether the kernel sends the request again, because an earlier daemon did not answer. */
bool journal_request_is_resent(uint64_t request);
/* Whether the request (journal_cause.request) is sent again and was completed by an earlier daemon;
 * then *record has the outcome. */
bool journal_drc_find(const struct journal *journal, uint64_t request,
		      struct journal_request *record);

/* All complete records of the journal, by sequence number; the parts are not checked. For the
 * recovery. */
struct journal_list {
	const struct journal_record **at;
	size_t count;
};
int journal_read(const struct journal *journal, struct journal_list *list);
/* The records of a half, in the order of their segments. For journal_read and the fuzzer. */
int journal_read_half(const char *half, uint64_t units, uint64_t epoch, struct journal_list *list);
int journal_sort(struct journal_list *list);

/* A part of a record, with all lengths and names checked: the memory's content is not trusted. */
struct journal_view {
	enum journal_kind kind;
	const void *fixed;
	const char *tail; /* aligned to 8 */
	uint32_t tail_bytes;
};
/* Reads the part at offset (0: the first). Returns the offset of the next part; 0: no valid part
 * there. */
uint32_t journal_view(const struct journal_record *record, uint32_t offset,
		      struct journal_view *view);

/* Marks the journal as unreadable, because a change could not be logged. */
void journal_fail(struct journal *journal, uint64_t bytes);

/* Ids below are for the volumes' own descriptors. */
#define JOURNAL_FIRST_ID 16

/* Keeps a descriptor for the next daemon, under an id of the kind: the id's number, or 0 on
 * failure. */
uint64_t journal_hold(struct journal *journal, enum fdstore_kind kind, int fd);
void journal_drop(struct journal *journal, enum fdstore_kind kind, uint64_t id);

/* A checkpoint. From begin to end new records go to the other half, which is read after the first;
 * meanwhile the caller must append the state of all objects. -EBUSY: the last daemon ended within a
 * checkpoint, so that the other half is in use: append the state and call end. */
int journal_rotate_begin(struct journal *journal);
void journal_rotate_end(struct journal *journal);

#endif
