/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Appending to the journal. */
#include "fs/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/vector.h"

/* Room that a writer has before a change begins: enough for the records of a change without
 * allocations, and of most changes with allocations. */
#define ROOM_BYTES (8ULL << 10)

/* Units of a half that only changes under way may use, when the rest of the half is full. */
#define SPARE_UNITS (2ULL * JOURNAL_WRITERS)

#define RESENT (1ULL << 63)

bool journal_request_is_resent(uint64_t request)
{
	return request & RESENT;
}

bool journal_drc_find(const struct journal *journal, uint64_t request,
		      struct journal_request *record)
{
	uint64_t unique = request & ~RESENT;

	if (!journal || !(request & RESENT))
		return false;
	size_t low = vector_search(i, journal->n_drc, journal->drc[i].request < unique);

	if (low == journal->n_drc || journal->drc[low].request != unique)
		return false;
	*record = journal->drc[low];
	return true;
}

void journal_leave(struct journal *journal)
{
	if (journal && journal->adopted)
		atomic_store(&journal->is_left, true);
}

bool journal_is_left(const struct journal *journal)
{
	return journal && atomic_load_explicit(&journal->is_left, memory_order_relaxed);
}

static void fault_call(const struct journal *journal)
{
	if (journal->fault)
		journal->fault(journal->fault_of);
}

/* More threads than JOURNAL_WRITERS share writers. */
static struct journal_writer *writer_own(struct journal *journal)
{
	static _Atomic unsigned threads;
	static _Thread_local unsigned mine;

	if (!mine)
		mine = atomic_fetch_add(&threads, 1) % JOURNAL_WRITERS + 1;
	return &journal->writers[mine - 1];
}

static void checkpoint_request(struct journal *journal)
{
	scoped_lock(&journal->lock);
	journal->checkpoint_wanted = true;
	background_wake(&journal->checkpointer);
}

/* Backs memory before the first store to it: a page fault that cannot be served would kill the
 * daemon. */
static int memory_back(struct journal *journal, const void *memory, uint64_t bytes)
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
	return memory_back(journal, &journal->slots[first], slots * sizeof(struct journal_slot));
}

struct journal_slot *journal_slot(struct journal *journal, uint32_t slot)
{
	return &journal->slots[slot];
}

/* Takes a segment with room for bytes of records and leaves spare units. The writer's lock is held.
 */
static int segment_alloc(struct journal *journal, struct journal_writer *writer, uint64_t bytes,
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
	fault_call(journal);

	struct journal_segment *segment = (void *)(journal->halves[half] + first * JOURNAL_UNIT);
	int rc = memory_back(journal, segment, units * JOURNAL_UNIT);

	if (rc < 0)
		return rc;
	fault_call(journal);
	segment->units = units;
	__atomic_store_n(&segment->check, journal_segment_check(segment, header->epoch[half]),
			 __ATOMIC_RELEASE);
	fault_call(journal);
	writer->epoch = header->epoch[half];
	writer->at = (char *)(segment + 1);
	writer->end = (char *)segment + units * JOURNAL_UNIT;
	if (first + units > atomic_load(&journal->limit))
		checkpoint_request(journal);
	return 0;
}

static bool writer_has_room(const struct journal_writer *writer, uint64_t bytes)
{
	return writer->at && (uint64_t)(writer->end - writer->at) >= bytes;
}

int journal_room_now(struct journal *journal)
{
	if (!journal)
		return 0;
	struct journal_writer *writer = writer_own(journal);

	scoped_lock(&writer->lock);
	return writer_has_room(writer, ROOM_BYTES)
		   ? 0
		   : segment_alloc(journal, writer, ROOM_BYTES, SPARE_UNITS);
}

int journal_room(struct journal *journal)
{
	int rc = journal_room_now(journal);

	if (rc != -ENOSPC)
		return rc;
	pthread_mutex_lock(&journal->lock);
	if (atomic_load(&journal->checkpointer.running)) {
		journal->checkpoint_wanted = true;
		background_wake(&journal->checkpointer);
		while (journal->checkpoint_wanted && !atomic_load(&journal->checkpointer.stopping))
			pthread_cond_wait(&journal->changed, &journal->lock);
	}
	pthread_mutex_unlock(&journal->lock);
	return journal_room_now(journal);
}

void journal_fail(struct journal *journal, uint64_t bytes)
{
	if (!atomic_exchange(&journal->header->broken, 1))
		log_error("journal: no memory for another %llu bytes: if the daemon ends now, its "
			  "files are lost; remount when there is memory",
			  (unsigned long long)bytes);
}

static uint32_t piece_bytes(const struct journal_piece *piece)
{
	return (uint32_t)sizeof(struct journal_part) + piece->bytes + piece->tail[0].bytes +
	       piece->tail[1].bytes;
}

static char *bytes_put(char *at, const void *data, uint32_t bytes)
{
	if (bytes)
		memcpy(at, data, bytes);
	return at + bytes;
}

static void record_fill(struct journal_record *record, const struct journal_piece *pieces,
			unsigned n)
{
	char *at = (char *)(record + 1);

	for (unsigned i = 0; i < n; i++) {
		const struct journal_piece *piece = &pieces[i];
		struct journal_part part = {.kind = (uint16_t)piece->kind,
					    .bytes = piece_bytes(piece)};
		char *to = bytes_put(at, &part, sizeof(part));

		to = bytes_put(to, piece->fixed, piece->bytes);
		to = bytes_put(to, piece->tail[0].data, piece->tail[0].bytes);
		bytes_put(to, piece->tail[1].data, piece->tail[1].bytes);
		at += journal_align(part.bytes);
	}
}

static void request_remember(struct journal *journal, struct journal_writer *writer,
			     const struct journal_record *record)
{
	writer->recent[writer->n_recent++ % JOURNAL_RECENT] = (struct journal_request){
	    .request = record->request,
	    .ino = record->ino,
	    .completed = record->completed,
	    .writer = (uint32_t)(writer - journal->writers),
	};
}

void journal_append(struct journal *journal, const struct journal_piece *pieces, unsigned n,
		    const struct journal_cause *cause)
{
	uint64_t bytes = sizeof(struct journal_record);

	if (!journal || journal_is_left(journal))
		return;
	for (unsigned i = 0; i < n; i++)
		bytes += journal_align(piece_bytes(&pieces[i]));
	struct journal_writer *writer = writer_own(journal);

	scoped_lock(&writer->lock);
	if (!writer_has_room(writer, bytes) && segment_alloc(journal, writer, bytes, 0) < 0) {
		journal_fail(journal, bytes);
		return;
	}
	struct journal_record *record = (struct journal_record *)writer->at;

	record->sequence = atomic_fetch_add(&journal->sequence, 1);
	record->request = cause ? cause->request & ~RESENT : 0;
	record->ino = cause ? cause->ino : 0;
	record->bytes = (uint32_t)bytes;
	record->writer = (uint16_t)(writer - journal->writers);
	record->completed = record->request ? (uint16_t)cause->completed : 0;
	fault_call(journal);
	record_fill(record, pieces, n);
	fault_call(journal);
	if (record->request)
		request_remember(journal, writer, record);
	writer->at += bytes;
	__atomic_store_n(&record->check, journal_record_check(record, writer->epoch),
			 __ATOMIC_RELEASE);
	fault_call(journal);
}

uint64_t journal_hold(struct journal *journal, enum fdstore_kind kind, int fd)
{
	uint64_t id = atomic_fetch_add(&journal->last_id, 1) + 1;
	int rc = journal->fdstore.hold(journal->fdstore.context, fdstore_id(kind, id), fd);

	fault_call(journal);
	return rc < 0 ? 0 : id;
}

void journal_drop(struct journal *journal, enum fdstore_kind kind, uint64_t id)
{
	if (id && !journal_is_left(journal))
		journal->fdstore.drop(journal->fdstore.context, fdstore_id(kind, id));
	fault_call(journal);
}

bool journal_is_raised(const struct journal *journal)
{
	return atomic_load(&journal->header->version) == JOURNAL_VERSION;
}

bool journal_all_handed_out(const struct journal *journal)
{
	return !journal_is_raised(journal) || atomic_load(&journal->header->all_handed_out);
}

void journal_raise(struct journal *journal)
{
	if (!journal || journal_is_raised(journal))
		return;
	atomic_store(&journal->header->all_handed_out, 1);
	fault_call(journal);
	atomic_store(&journal->header->version, JOURNAL_VERSION);
	fault_call(journal);
	checkpoint_request(journal);
}

static void append_request(struct journal *journal, const struct journal_request *request)
{
	struct journal_piece piece = {
	    .kind = JOURNAL_REQUEST, .bytes = sizeof(*request), .fixed = request};

	journal_append(journal, &piece, 1, NULL);
}

void journal_drc_carry(struct journal *journal)
{
	for (size_t i = 0; i < journal->n_drc; i++) {
		struct journal_request request = journal->drc[i];

		request.writer =
		    request.writer < JOURNAL_EARLIER ? JOURNAL_EARLIER : request.writer + 1;
		if (request.writer < JOURNAL_EARLIER + JOURNAL_EARLIER_MAX)
			append_request(journal, &request);
	}
}

void journal_drc_forget(struct journal *journal)
{
	append_request(journal, &(struct journal_request){.writer = JOURNAL_FORGET});
}

static void writers_rotate(struct journal *journal)
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
			append_request(journal, &recent[k]);
	}
	journal_drc_carry(journal);
}

/* Without bit 0 in the state a single half is read, with bit 0 both halves. So a checkpoint is two
 * stores: the first adds the other half, the second drops the older half. A thread that appends
 * reads the state under its writer's lock: after all writers' locks have been held, no thread uses
 * the older half any more. */
int journal_rotate_begin(struct journal *journal)
{
	struct journal_header *header = journal->header;
	uint64_t state = atomic_load(&header->state);
	unsigned new_half = !journal_newest(state);

	journal->rotation_raised = journal_is_raised(journal);
	if (journal_has_older(state))
		return -EBUSY;
	header->epoch[new_half] = header->epoch[!new_half] + 1;
	atomic_store(&header->units[new_half], 0);
	fault_call(journal);
	atomic_store(&header->state, (state + 1) % JOURNAL_STATES);
	fault_call(journal);
	writers_rotate(journal);
	return 0;
}

void journal_rotate_end(struct journal *journal)
{
	struct journal_header *header = journal->header;
	uint64_t state = atomic_load(&header->state);
	unsigned older = !journal_newest(state);

	if (journal_is_left(journal))
		return; /* the newer half may lack records */
	fault_call(journal);
	atomic_store(&header->state, (state + 1) % JOURNAL_STATES);
	fault_call(journal);
	if (journal->rotation_raised)
		atomic_store(&header->all_handed_out, 0);
	fault_call(journal);
	/* The half must be zero before records are appended to it again. */
	off_t offset = journal->halves[older] - (char *)header;

	if (fallocate(journal->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
		      (off_t)header->half_bytes) < 0)
		memset(journal->halves[older], 0,
		       atomic_load(&header->units[older]) * JOURNAL_UNIT);
	atomic_store(&header->units[older], 0);
}
