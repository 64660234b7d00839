/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files that are written, renamed and removed while all threads of the spool save the files. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "common/cleanup.h"
#include "tests/unit/spool_fixture.h"

/* Large enough that several threads save a file. */
#define BYTES (SPOOL_LARGE + 3 * SPOOL_BLOCK + 17)
#define PIECE 4096
#define SAVES 4

static char model[BYTES], seen[BYTES];
static atomic_bool over;

static void up(void)
{
	spool_up();
	spool_start(&fixture);
	ck_assert_int_eq(persist(gpu(0), "disk"), 0);
}

static void *write_pieces(void *pointer)
{
	struct inode *file = pointer;
	uint64_t state = unit_seed();

	while (!atomic_load(&over)) {
		uint64_t offset = unit_random(&state) % (BYTES - PIECE);

		memset(model + offset, (int)unit_random(&state), PIECE);
		put_bytes(file, model + offset, PIECE, offset);
	}
	worker_end();
	return NULL;
}

START_TEST(written_while_saved)
{
	struct spool_saved saved;
	pthread_t writer;

	ck_assert_int_eq(make_file(gpu(0), "large"), 0);
	put_bytes(at(gpu(0), "large"), model, BYTES, 0);
	atomic_store(&over, false);
	ck_assert_int_eq(pthread_create(&writer, NULL, write_pieces, at(gpu(0), "large")), 0);
	for (unsigned i = 0; i < SAVES; i++)
		ck_assert_int_eq(spool_save_below(&fixture, NULL, SPOOL_ALL_USERS, &saved), 0);
	atomic_store(&over, true);
	pthread_join(writer, NULL);
	remount();
	spool_start(&fixture);
	ck_assert_int_eq(get_bytes(at(gpu(0), "large"), seen, BYTES, 0), BYTES);
	ck_assert(memcmp(seen, model, BYTES) == 0);
}
END_TEST

#define NAMES 24
#define BURST 40

static atomic_uint saves;

/* Waits until a save of all files ended, or the test is over. */
static void wait_for_save(void)
{
	unsigned before = atomic_load(&saves);

	while (!atomic_load(&over) && atomic_load(&saves) == before)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Makes a file with a size that no other file has. */
static void make_another(const char *name, unsigned number)
{
	ck_assert_int_eq(make_file(gpu(0), name), 0);
	put_bytes(at(gpu(0), name), model, number + 1, 0);
}

/* Renames saved files so often that a name is taken again before the spool followed the first file
 * with the name. */
static void *rename_all(void *pointer)
{
	uint64_t state = unit_seed() + 1;
	unsigned made = NAMES;

	for (unsigned i = 1; !atomic_load(&over); i++) {
		char from[16], to[16];

		snprintf(from, sizeof(from), "%u", (unsigned)(unit_random(&state) % NAMES));
		snprintf(to, sizeof(to), "%u", (unsigned)(unit_random(&state) % NAMES));
		if (!is_there(gpu(0), from))
			make_another(from, made++);
		rename_to(gpu(0), from, gpu(0), to, unit_random(&state) % 2 ? RENAME_EXCHANGE : 0);
		if (i % BURST == 0)
			wait_for_save();
	}
	worker_end();
	return pointer;
}

/* Whatever the final names are, each name leads to the same file after the next mount. */
START_TEST(renamed_while_saved)
{
	uint64_t sizes[NAMES] = {0};
	struct spool_saved saved;
	pthread_t renamer;
	char name[16];

	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "%u", i);
		make_another(name, i);
	}
	atomic_store(&over, false);
	ck_assert_int_eq(pthread_create(&renamer, NULL, rename_all, NULL), 0);
	for (unsigned i = 0; i < 2 * SAVES; i++) {
		ck_assert_int_eq(spool_save_below(&fixture, NULL, SPOOL_ALL_USERS, &saved), 0);
		atomic_fetch_add(&saves, 1);
	}
	atomic_store(&over, true);
	pthread_join(renamer, NULL);
	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "%u", i);
		if (is_there(gpu(0), name))
			sizes[i] = file_size(at(gpu(0), name)->file);
	}
	remount();
	spool_start(&fixture);
	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "%u", i);
		ck_assert(is_there(gpu(0), name) == (sizes[i] > 0));
		if (sizes[i])
			ck_assert_uint_eq(file_size(at(gpu(0), name)->file), sizes[i]);
	}
	ck_assert_uint_le(gpu(0)->dir->n_names, NAMES);
}
END_TEST

static void *open_all(void *pointer)
{
	char byte;

	for (unsigned i = 0; i < NAMES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", (unsigned)(i * 7 % NAMES));
		if (get_bytes(at(gpu(0), name), &byte, 1, 0) != 1)
			return pointer;
	}
	worker_end();
	return NULL;
}

START_TEST(opened_while_brought_back)
{
	pthread_t threads[3];
	void *failed;

	for (unsigned i = 0; i < NAMES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", i);
		ck_assert_int_eq(make_file(gpu(0), name), 0);
		put_bytes(at(gpu(0), name), model, 3 * SPOOL_BLOCK, 0);
	}
	mount_down();
	ck_assert_int_eq(mount_try(",restore=now"), 0);
	spool_start(&fixture);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, open_all, &over), 0);
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(threads[i], &failed);
		ck_assert_ptr_null(failed);
	}
	spool_rename_queue_end(spool_of(&fixture));
	ck_assert_uint_eq(spool_counters(&fixture).fetched_bytes, NAMES * 3 * SPOOL_BLOCK);
}
END_TEST

static bool is_followed(void)
{
	scoped_lock(&spool_of(&fixture)->lock);
	return !spool_of(&fixture)->n_queued;
}

/* Requests are served before the spool's threads run. */
START_TEST(renamed_before_the_start)
{
	struct spool_saved saved;

	make_another("before", 1);
	ck_assert_int_eq(spool_save_below(&fixture, NULL, SPOOL_ALL_USERS, &saved), 0);
	remount();
	ck_assert_int_eq(rename_to(gpu(0), "before", gpu(0), "after", 0), 0);
	ck_assert(!is_followed());
	spool_start(&fixture);
	while (!is_followed())
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
END_TEST

static Suite *suite(void)
{
	TCase *tcase;
	Suite *all = unit_suite("spool under threads", &tcase, 120);

	tcase_add_checked_fixture(tcase, up, spool_down);
	tcase_add_test(tcase, written_while_saved);
	tcase_add_test(tcase, renamed_while_saved);
	tcase_add_test(tcase, opened_while_brought_back);
	tcase_add_test(tcase, renamed_before_the_start);
	return all;
}

int main(void)
{
	return unit_main(suite());
}
