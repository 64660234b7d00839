/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Threads write, read, shorten, lease and remove files on a GPU that is too small for all of them,
 * while other threads move the files. Every byte that is read is the byte that was written last. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/attributes/inode_attributes.h"
#include "fs/file/export.h"
#include "fs/tier/tier.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define MIB	(1ULL << 20)
#define WORKERS 3
#define MOVERS	2
#define FILES	6 /* of each worker */
#define BYTES	(3 * MIB)
#define STEPS	300

static struct inode *files[WORKERS][FILES];
static atomic_bool stop;

static void up(void)
{
	char *argv[] = {
	    "gpumemfs", "/tmp",
	    "-o",	"backend=host,host_gpus=1,host_size=24M,spill=host:96M,user_spill=100%",
	    "-o",	"log_level=error",
	    NULL};

	memset(&fixture, 0, sizeof(fixture));
	ck_assert_int_eq(options_parse(6, argv, &fixture.options), 0);
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	fixture.can.max_write = 65536;
	ck_assert_int_eq(fs_open(&fixture), 0);
}

struct model {
	unsigned char *bytes;
	uint64_t size;
};

static void step(unsigned worker, struct model *models, uint64_t *state, unsigned char *buffer)
{
	unsigned n = unit_random(state) % FILES;
	struct inode *inode = files[worker][n];
	struct model *model = &models[n];
	uint64_t offset = unit_random(state) % BYTES,
		 bytes = unit_random(state) % (BYTES - offset) + 1;
	struct inode_call call;
	int kind;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	switch (unit_random(state) % 6) {
	case 0:
	case 1:
		memset(buffer, (int)(unit_random(state) % 255) + 1, bytes);
		ck_assert_int_eq(file_write(inode->file, &call.call, buffer, bytes, offset),
				 (ssize_t)bytes);
		memcpy(model->bytes + offset, buffer, bytes);
		if (offset + bytes > model->size)
			model->size = offset + bytes;
		break;
	case 2:
		ck_assert_int_eq(file_truncate(inode->file, &call.call, offset), 0);
		if (offset < model->size)
			memset(model->bytes + offset, 0, model->size - offset);
		model->size = offset;
		break;
	case 3:
		kind = file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT);
		ck_assert_int_eq(kind, FILE_LEASE_HOLDS);
		if (call.call.attrs.resident != RESIDENT_HOST)
			ck_assert_uint_eq(file_bytes_in(inode->file, PLACE_HOST), 0);
		file_lease_end(inode->file, FILE_LEASE_HOLDS);
		break;
	default:
		ck_assert_int_eq(file_read(inode->file, &call.call, buffer, BYTES, 0),
				 (ssize_t)model->size);
		ck_assert_mem_eq(buffer, model->bytes, model->size);
	}
}

static void *worker_main(void *pointer)
{
	unsigned worker = (unsigned)(uintptr_t)pointer;
	uint64_t state = unit_seed() + worker;
	unsigned char *buffer = malloc(BYTES);
	struct model models[FILES];

	for (unsigned n = 0; n < FILES; n++)
		models[n] = (struct model){.bytes = calloc(1, BYTES)};
	for (unsigned i = 0; i < STEPS; i++)
		step(worker, models, &state, buffer);
	for (unsigned n = 0; n < FILES; n++)
		free(models[n].bytes);
	free(buffer);
	worker_end();
	return NULL;
}

static void *mover_main(void *pointer)
{
	static const char *const places[] = {"gpu", "host", "evicted"};
	uint64_t state = unit_seed() + 100 + (uintptr_t)pointer;

	while (!atomic_load(&stop)) {
		struct inode *inode =
		    files[unit_random(&state) % WORKERS][unit_random(&state) % FILES];
		const char *place = places[unit_random(&state) % 3];
		int rc = inode_attr_set(&fixture, worker_copier(&fixture), inode, ATTR_RESIDENT,
					place, strlen(place), 0);

		ck_assert_msg(rc == 0 || rc == -EBUSY || rc == -ENOSPC, "%s: %d", place, rc);
	}
	worker_end();
	return NULL;
}

START_TEST(bytes_stay_the_same)
{
	pthread_t workers[WORKERS], movers[MOVERS];
	char name[16];

	for (unsigned w = 0; w < WORKERS; w++)
		for (unsigned n = 0; n < FILES; n++) {
			snprintf(name, sizeof(name), "file%u.%u", w, n);
			ck_assert_int_eq(make_file(gpu(0), name), 0);
			files[w][n] = at(gpu(0), name);
		}
	for (unsigned i = 0; i < MOVERS; i++)
		ck_assert_int_eq(pthread_create(&movers[i], NULL, mover_main, (void *)(uintptr_t)i),
				 0);
	for (unsigned i = 0; i < WORKERS; i++)
		ck_assert_int_eq(
		    pthread_create(&workers[i], NULL, worker_main, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < WORKERS; i++)
		ck_assert_int_eq(pthread_join(workers[i], NULL), 0);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < MOVERS; i++)
		ck_assert_int_eq(pthread_join(movers[i], NULL), 0);
	ck_assert_uint_gt(tier_counters(&fixture).evictions, 0);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("tier_threads", &tests, 120);

	tcase_add_checked_fixture(tests, up, fixture_down);
	tcase_add_test(tests, bytes_stay_the_same);
	return unit_main(suite);
}
