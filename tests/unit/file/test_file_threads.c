/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Many threads use the same file. Each writer has its own part, because two writers of the same
 * bytes may read any mix; meanwhile other threads change the layout all the time. */
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/unit/file_fixture.h"

#define WRITERS	 4
#define PART	 (3 * MIB / 2) /* parts share granules */
#define DATA_END (WRITERS * PART)
#define ROUNDS	 1000

struct shared {
	struct fixture f;
	struct file *file, *other;
	atomic_int running;
};

struct worker {
	struct shared *shared;
	pthread_t thread;
	unsigned index;
	uint64_t state;
};

static struct file_call call_of(struct worker *worker)
{
	struct file_call call = worker->shared->f.call;

	ck_assert_int_eq(copier_open(worker->shared->f.backend, &call.copier), 0);
	call.attrs.page_size = (uint8_t)(worker->index % 4);
	return call;
}

static void write_and_check(struct worker *worker, const struct file_call *call,
			    unsigned char *mine, unsigned char *buffer)
{
	uint64_t at = unit_random(&worker->state) % PART;
	uint64_t limit = unit_random(&worker->state) % 4 ? 20 * KIB : PART;
	uint64_t bytes = 1 + unit_random(&worker->state) % limit;
	uint64_t base = worker->index * PART;

	if (bytes > PART - at)
		bytes = PART - at;
	memset(mine + at, (int)unit_random(&worker->state), bytes);
	ck_assert_int_eq(file_write(worker->shared->file, call, mine + at, bytes, base + at),
			 (ssize_t)bytes);
	at -= at < 100 ? at : 100;
	bytes = bytes < PART - at ? bytes : PART - at;
	ck_assert_int_eq(file_read(worker->shared->file, call, buffer, bytes, base + at),
			 (ssize_t)bytes);
	ck_assert_mem_eq(buffer, mine + at, bytes);
}

static void *write_part(void *argument)
{
	struct worker *worker = argument;
	struct file_call call = call_of(worker);
	unsigned char *mine = calloc(1, PART), *buffer = malloc(PART);

	for (int i = 0; i < ROUNDS; i++)
		write_and_check(worker, &call, mine, buffer);
	ck_assert_int_eq(file_read(worker->shared->file, &call, buffer, PART, worker->index * PART),
			 (ssize_t)PART);
	ck_assert_mem_eq(buffer, mine, PART);
	free(mine);
	free(buffer);
	copier_close(call.copier);
	atomic_fetch_sub(&worker->shared->running, 1);
	return NULL;
}

static void move_somewhere(struct shared *shared, const struct file_call *call, uint64_t choice)
{
	struct volume *to = &shared->f.volumes[choice % VOLUMES];
	struct file_move *move;

	if (file_move_begin(shared->file, call, to, &move) < 0)
		return;
	file_move_end(move, choice & 16 ? FILE_MOVE_COMMIT : FILE_MOVE_ABORT);
	file_move_free(move);
}

/* Only a single thread moves the file, so that the thread knows the file's volume. ThreadSanitizer
 * would take the exchange of an object below its fd (dup3) for a race with the users of the fd. */
static void move_or_relayout(struct worker *worker, const struct file_call *call, uint64_t choice)
{
	struct shared *shared = worker->shared;

	if (worker->index > WRITERS)
		return;
	if (choice & 1)
		move_somewhere(shared, call, choice >> 1);
	else if (file_volume(shared->file)->pool)
		file_relayout(shared->file, call);
}

/* Calls that do not change the bytes of the parts. */
static void disturb(struct worker *worker, struct file_call *call)
{
	struct shared *shared = worker->shared;
	struct file *file = shared->file, *other = shared->other;
	uint64_t choice = unit_random(&worker->state);
	uint64_t own = (worker->index - WRITERS) * 6 * MIB; /* the thread's own bytes */
	uint64_t past = DATA_END + own + (choice >> 8) % (4 * MIB);
	uint64_t bytes = 1 + (choice >> 32) % MIB;
	int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

	call->attrs.page_size = (uint8_t)((choice >> 4) % 4);
	switch (choice % 10) {
	case 0:
		file_truncate(file, call, past);
		break;
	case 1:
		file_allocate(file, call, punch, past, bytes);
		break;
	case 2:
		file_allocate(file, call, FALLOC_FL_KEEP_SIZE, past, bytes);
		break;
	case 3:
		file_trim(file, call);
		break;
	case 4 ... 5:
		move_or_relayout(worker, call, choice >> 6);
		break;
	case 6:
		file_copy(file, past, other, call, past - DATA_END, bytes);
		break;
	case 7:
		file_copy(other, past - DATA_END, file, call, past, bytes);
		break;
	case 8:
		ck_assert_int_ge(file_seek(file, 0, SEEK_HOLE), 0);
		file_mapped(file);
		break;
	default:
		ck_assert_uint_ge(file_size(file), DATA_END);
		ck_assert_uint_lt(file_allocated(file), 200 * MIB);
		break;
	}
}

static void *disturb_until_done(void *argument)
{
	struct worker *worker = argument;
	struct file_call call = call_of(worker);

	while (atomic_load(&worker->shared->running) > 0)
		disturb(worker, &call);
	copier_close(call.copier);
	return NULL;
}

START_TEST(test_layout_changes_under_readers_and_writers)
{
	struct shared shared;
	struct worker workers[WRITERS + 2];

	fixture_open(&shared.f, 256 * MIB, 8 * MIB);
	shared.file = fixture_file(&shared.f, GPU0);
	shared.other = fixture_file(&shared.f, GPU1);
	atomic_init(&shared.running, WRITERS);
	ck_assert_int_eq(file_truncate(shared.file, &shared.f.call, DATA_END), 0);
	for (unsigned i = 0; i < WRITERS + 2; i++) {
		workers[i] =
		    (struct worker){.shared = &shared, .index = i, .state = unit_seed() + i};
		pthread_create(&workers[i].thread, NULL,
			       i < WRITERS ? write_part : disturb_until_done, &workers[i]);
	}
	for (unsigned i = 0; i < WRITERS + 2; i++)
		pthread_join(workers[i].thread, NULL);

	check_layout(shared.file);
	check_layout(shared.other);
	check_beyond_end(&shared.f, shared.file);
	ck_assert_int_eq(atomic_load(&shared.f.quota_owner.total),
			 (int64_t)(atomic_load(&shared.file->allocated) +
				   atomic_load(&shared.other->allocated)));
	file_free(shared.file, &shared.f.call);
	file_free(shared.other, &shared.f.call);
	fixture_close(&shared.f);
}
END_TEST

/* Copies in opposite directions lock the two brlocks in the same order. */
static void *copy_round(void *argument)
{
	struct worker *worker = argument;
	struct shared *shared = worker->shared;
	struct file_call call = call_of(worker);
	struct file *files[2] = {shared->file, shared->other};

	for (int i = 0; i < 300; i++) {
		struct file *from = files[worker->index % 2], *to = files[!(worker->index % 2)];
		uint64_t base = 8 * MIB * (1 + worker->index);
		ssize_t n = file_copy(from, 0, to, &call, base + (uint64_t)i * 10000, 5000);

		ck_assert_int_eq(n, 5000);
		if (i % 20 == 0)
			ck_assert_int_eq(file_allocate(to, &call,
						       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						       base, 4 * MIB),
					 0);
	}
	copier_close(call.copier);
	return NULL;
}

START_TEST(test_copies_in_both_directions)
{
	struct shared shared;
	struct worker workers[WRITERS];
	char bytes[5000];

	fixture_open(&shared.f, 256 * MIB, 8 * MIB);
	shared.file = fixture_file(&shared.f, GPU0);
	shared.other = fixture_file(&shared.f, _i ? HOST : GPU0);
	memset(bytes, 'b', sizeof(bytes));
	file_write(shared.file, &shared.f.call, bytes, sizeof(bytes), 0);
	file_write(shared.other, &shared.f.call, bytes, sizeof(bytes), 0);
	for (unsigned i = 0; i < WRITERS; i++) {
		workers[i] = (struct worker){.shared = &shared, .index = i};
		pthread_create(&workers[i].thread, NULL, copy_round, &workers[i]);
	}
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(workers[i].thread, NULL);
	check_layout(shared.file);
	check_layout(shared.other);
	file_free(shared.file, &shared.f.call);
	file_free(shared.other, &shared.f.call);
	fixture_close(&shared.f);
}
END_TEST

static void *append(void *argument)
{
	struct worker *worker = argument;
	struct file_call call = call_of(worker);
	char record[1000];

	memset(record, 'a' + (int)worker->index, sizeof(record));
	for (uint64_t i = 0; i < 2000; i++) {
		uint64_t at = (i * WRITERS + worker->index) * sizeof(record);

		ck_assert_int_eq(
		    file_write(worker->shared->file, &call, record, sizeof(record), at),
		    (ssize_t)sizeof(record));
	}
	copier_close(call.copier);
	return NULL;
}

START_TEST(test_many_grow_one_file)
{
	struct shared shared;
	struct worker workers[WRITERS];
	char record[1000];

	fixture_open(&shared.f, 256 * MIB, 8 * MIB);
	shared.file = fixture_file(&shared.f, _i);
	for (unsigned i = 0; i < WRITERS; i++) {
		workers[i] = (struct worker){.shared = &shared, .index = i};
		pthread_create(&workers[i].thread, NULL, append, &workers[i]);
	}
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(workers[i].thread, NULL);
	ck_assert_uint_eq(file_size(shared.file), WRITERS * 2000 * sizeof(record));
	for (uint64_t i = 0; i < WRITERS * 2000; i++) {
		ck_assert_int_eq(file_read(shared.file, &shared.f.call, record, sizeof(record),
					   i * sizeof(record)),
				 (ssize_t)sizeof(record));
		ck_assert_int_eq(record[0], 'a' + (int)(i % WRITERS));
		ck_assert_int_eq(record[999], 'a' + (int)(i % WRITERS));
	}
	ck_assert_int_eq(atomic_load(&shared.f.quota_owner.total),
			 (int64_t)atomic_load(&shared.file->allocated));
	file_free(shared.file, &shared.f.call);
	fixture_close(&shared.f);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("file_threads", &tcase, 300);

	tcase_add_test(tcase, test_layout_changes_under_readers_and_writers);
	tcase_add_loop_test(tcase, test_copies_in_both_directions, 0, 2);
	tcase_add_loop_test(tcase, test_many_grow_one_file, 0, VOLUMES);
	return unit_main(suite);
}
