/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Appending. */
#include "fs/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"

/* What a writer has before a change begins, so that its records fit: those of a change that takes
 * no memory, and of many that do. */
#define ROOM_BYTES (8ULL << 10)

/* What is left of an area for changes that are under way when the rest is full. */
#define SPARE_UNITS (2ULL * JOURNAL_WRITERS)

#define RESENT (1ULL << 63)

static _Thread_local uint64_t request;

void journal_set_request(uint64_t unique)
{
	request = unique;
}

bool journal_drc_find(const struct journal *journal, struct journal_request *done)
{
	uint64_t unique = request & ~RESENT;
	size_t low = 0, high = journal && request & RESENT ? journal->n_done : 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (journal->done[middle].request < unique)
			low = middle + 1;
		else
			high = middle;
	}
	if (!journal || low == journal->n_done || journal->done[low].request != unique ||
	    !(request & RESENT))
		return false;
	*done = journal->done[low];
	return true;
}

static void fault(const struct journal *journal)
{
	if (journal->fault)
		journal->fault(journal->fault_of);
}

/* Threads beyond the number of writers share some. */
static struct journal_writer *writer_mine(struct journal *journal)
{
	static _Atomic unsigned threads;
	static _Thread_local unsigned mine;

	if (!mine)
		mine = atomic_fetch_add(&threads, 1) % JOURNAL_WRITERS + 1;
	return &journal->writers[mine - 1];
}

static void want_compaction(struct journal *journal)
{
	scoped_lock(&journal->lock);
	journal->wanted = true;
	pthread_cond_broadcast(&journal->changed);
}

/* Backed before it is touched: a page that could not be had would end the daemon. */
static int back(struct journal *journal, const void *memory, uint64_t bytes)
{
	off_t offset = (const char *)memory - (const char *)journal->header;

	while (fallocate(journal->fd, 0, offset, (off_t)bytes) < 0)
		if (errno != EINTR)
			return -ENOSPC;
	return 0;
}

int journal_grow(struct journal *journal, uint32_t first, uint32_t slots)
{
	if (slots > journal->header->slots || first > journal->header->slots - slots)
		return -ENOSPC;
	return back(journal, &journal->slots[first], slots * sizeof(struct journal_slot));
}

struct journal_slot *journal_slot(struct journal *journal, uint32_t slot)
{
	return &journal->slots[slot];
}

/* A segment that has bytes for records, the writer's lock held; spare units are left. */
static int segment_take(struct journal *journal, struct journal_writer *writer, uint64_t bytes,
			uint64_t spare)
{
	struct journal_header *header = journal->header;
	unsigned half = journal_newest(atomic_load(&header->state));
	uint64_t units = (sizeof(struct journal_segment) + bytes + JOURNAL_UNIT - 1) / JOURNAL_UNIT;
	uint64_t all = header->half_bytes / JOURNAL_UNIT;
	uint64_t first = atomic_load(&header->units[half]);

	do {
		if (units + spare > all || first > all - units - spare)
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(&header->units[half], &first, first + units));
	fault(journal);

	struct journal_segment *segment = (void *)(journal->halves[half] + first * JOURNAL_UNIT);
	int rc = back(journal, segment, units * JOURNAL_UNIT);

	if (rc < 0)
		return rc;
	fault(journal);
	segment->units = units;
	__atomic_store_n(&segment->check, journal_segment_check(segment, header->epoch[half]),
			 __ATOMIC_RELEASE);
	fault(journal);
	writer->epoch = header->epoch[half];
	writer->at = (char *)(segment + 1);
	writer->end = (char *)segment + units * JOURNAL_UNIT;
	if (first + units > atomic_load(&journal->limit))
		want_compaction(journal);
	return 0;
}

static bool has_room(const struct journal_writer *writer, uint64_t bytes)
{
	return writer->at && (uint64_t)(writer->end - writer->at) >= bytes;
}

int journal_room_now(struct journal *journal)
{
	if (!journal)
		return 0;
	struct journal_writer *writer = writer_mine(journal);

	scoped_lock(&writer->lock);
	return has_room(writer, ROOM_BYTES)
		   ? 0
		   : segment_take(journal, writer, ROOM_BYTES, SPARE_UNITS);
}

int journal_room(struct journal *journal)
{
	int rc = journal_room_now(journal);

	if (rc != -ENOSPC)
		return rc;
	pthread_mutex_lock(&journal->lock);
	if (journal->running) {
		journal->wanted = true;
		pthread_cond_broadcast(&journal->changed);
		while (journal->wanted && !journal->ending)
			pthread_cond_wait(&journal->changed, &journal->lock);
	}
	pthread_mutex_unlock(&journal->lock);
	return journal_room_now(journal);
}

void journal_fail(struct journal *journal, uint64_t bytes)
{
	if (!atomic_exchange(&journal->header->broken, 1))
		log_error("journal: no memory for %llu bytes more: if the daemon ends now, its "
			  "files are lost; remount when there is memory",
			  (unsigned long long)bytes);
}

static uint32_t piece_bytes(const struct journal_piece *piece)
{
	return (uint32_t)sizeof(struct journal_part) + piece->bytes + piece->tail[0].bytes +
	       piece->tail[1].bytes;
}

static char *put(char *at, const void *data, uint32_t bytes)
{
	if (bytes)
		memcpy(at, data, bytes);
	return at + bytes;
}

static void fill(struct journal_record *record, const struct journal_piece *pieces, unsigned n)
{
	char *at = (char *)(record + 1);

	for (unsigned i = 0; i < n; i++) {
		const struct journal_piece *piece = &pieces[i];
		struct journal_part part = {.kind = (uint16_t)piece->kind,
					    .bytes = piece_bytes(piece)};
		char *to = put(at, &part, sizeof(part));

		to = put(to, piece->fixed, piece->bytes);
		to = put(to, piece->tail[0].data, piece->tail[0].bytes);
		put(to, piece->tail[1].data, piece->tail[1].bytes);
		at += journal_align(part.bytes);
	}
}

static void remember(struct journal *journal, struct journal_writer *writer,
		     const struct journal_record *record)
{
	writer->recent[writer->n_recent++ % JOURNAL_RECENT] = (struct journal_request){
	    .request = record->request,
	    .ino = record->ino,
	    .did = record->did,
	    .writer = (uint32_t)(writer - journal->writers),
	};
}

void journal_append(struct journal *journal, const struct journal_piece *pieces, unsigned n,
		    unsigned did, uint64_t ino)
{
	uint64_t bytes = sizeof(struct journal_record);

	if (!journal)
		return;
	for (unsigned i = 0; i < n; i++)
		bytes += journal_align(piece_bytes(&pieces[i]));
	struct journal_writer *writer = writer_mine(journal);

	scoped_lock(&writer->lock);
	if (!has_room(writer, bytes) && segment_take(journal, writer, bytes, 0) < 0) {
		journal_fail(journal, bytes);
		return;
	}
	struct journal_record *record = (struct journal_record *)writer->at;

	record->sequence = atomic_fetch_add(&journal->sequence, 1);
	record->request = did ? request & ~RESENT : 0;
	record->ino = ino;
	record->bytes = (uint32_t)bytes;
	record->writer = (uint16_t)(writer - journal->writers);
	record->did = record->request ? (uint16_t)did : 0;
	fault(journal);
	fill(record, pieces, n);
	fault(journal);
	if (record->request)
		remember(journal, writer, record);
	writer->at += bytes;
	__atomic_store_n(&record->check, journal_record_check(record, writer->epoch),
			 __ATOMIC_RELEASE);
	fault(journal);
}

uint64_t journal_hold(struct journal *journal, enum fdstore_kind kind, int fd)
{
	uint64_t id = atomic_fetch_add(&journal->last_id, 1) + 1;
	int rc = journal->holder.hold(journal->holder.of, fdstore_id(kind, id), fd);

	fault(journal);
	return rc < 0 ? 0 : id;
}

void journal_drop(struct journal *journal, enum fdstore_kind kind, uint64_t id)
{
	if (id)
		journal->holder.drop(journal->holder.of, fdstore_id(kind, id));
	fault(journal);
}

static void append_completed(struct journal *journal, const struct journal_request *done)
{
	struct journal_piece piece = {.kind = JOURNAL_DONE, .bytes = sizeof(*done), .fixed = done};

	journal_append(journal, &piece, 1, 0, 0);
}

void journal_drc_carry(struct journal *journal)
{
	for (size_t i = 0; i < journal->n_done; i++) {
		struct journal_request done = journal->done[i];

		done.writer = done.writer < JOURNAL_EARLIER ? JOURNAL_EARLIER : done.writer + 1;
		if (done.writer < JOURNAL_EARLIER + JOURNAL_EARLIER_MAX)
			append_completed(journal, &done);
	}
}

void journal_drc_forget(struct journal *journal)
{
	append_completed(journal, &(struct journal_request){.writer = JOURNAL_FORGET});
}

static void writers_turn(struct journal *journal)
{
	struct journal_request recent[JOURNAL_RECENT];

	for (unsigned i = 0; i < JOURNAL_WRITERS; i++) {
		struct journal_writer *writer = &journal->writers[i];
		unsigned n;

		pthread_mutex_lock(&writer->lock);
		n = writer->n_recent < JOURNAL_RECENT ? writer->n_recent : JOURNAL_RECENT;
		memcpy(recent, writer->recent, sizeof(recent));
		writer->at = writer->end = NULL;
		pthread_mutex_unlock(&writer->lock);
		for (unsigned k = 0; k < n; k++)
			append_completed(journal, &recent[k]);
	}
	journal_drc_carry(journal);
}

/* One area is read where state has the bit off, both where it is on: each turn is two stores, one
 * that opens the other area and one that drops this. Who appends looks at the state under his
 * writer's lock: once all of them were held, nobody is at the old area any more. */
int journal_rotate_begin(struct journal *journal)
{
	struct journal_header *header = journal->header;
	uint64_t state = atomic_load(&header->state);
	unsigned other = !journal_newest(state);

	if (journal_has_older(state))
		return -EBUSY;
	header->epoch[other] = header->epoch[!other] + 1;
	atomic_store(&header->units[other], 0);
	fault(journal);
	atomic_store(&header->state, (state + 1) % JOURNAL_STATES);
	fault(journal);
	writers_turn(journal);
	return 0;
}

void journal_rotate_end(struct journal *journal)
{
	struct journal_header *header = journal->header;
	uint64_t state = atomic_load(&header->state);
	unsigned older = !journal_newest(state);

	fault(journal);
	atomic_store(&header->state, (state + 1) % JOURNAL_STATES);
	fault(journal);
	/* Zeroes, as records are appended to. */
	off_t offset = journal->halves[older] - (char *)header;

	if (fallocate(journal->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
		      (off_t)header->half_bytes) < 0)
		memset(journal->halves[older], 0,
		       atomic_load(&header->units[older]) * JOURNAL_UNIT);
	atomic_store(&header->units[older], 0);
}
