/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Compaction: after most small files are removed the mount holds little more than the other files
 * use, and every byte of these is the same. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/file/export.h"
#include "fs/file/internal.h"
#include "fs/tier/tier.h"
#include "fs/tree/inode_table.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define FILES	  6000
#define BYTES_MAX (128UL << 10)

static unsigned char *wanted, *found;
static char spool_at[64];

static void up(void)
{
	char options[256];
	char *argv[] = {"gpumemfs", "/tmp", "-o", options, "-o", "log_level=error", NULL};

	strcpy(spool_at, "/dev/shm/gpumemfs-compact-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(spool_at));
	snprintf(options, sizeof(options),
		 "backend=host,host_gpus=2,host_size=1G,spill=host:1G,disk:1G,spool=%s", spool_at);
	memset(&fixture, 0, sizeof(fixture));
	ck_assert_int_eq(options_parse(6, argv, &fixture.options), 0);
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	fixture.can.max_write = 65536;
	ck_assert_int_eq(fs_open(&fixture), 0);
	wanted = malloc(BYTES_MAX);
	found = malloc(BYTES_MAX);
}

static void down(void)
{
	char remove[sizeof(spool_at) + 16];

	free(wanted);
	free(found);
	fixture_down();
	snprintf(remove, sizeof(remove), "rm -r %s", spool_at);
	ck_assert_int_eq(system(remove), 0);
}

static const char *name_of(unsigned n)
{
	static char name[16];

	snprintf(name, sizeof(name), "file%u", n);
	return name;
}

/* Fills wanted with the bytes of the n-th file. Half of the files have at most 4 KiB. */
static size_t wanted_bytes(unsigned n)
{
	uint64_t state = unit_seed() + n;
	size_t bytes = unit_random(&state) % (n % 2 ? 4096 : BYTES_MAX) + 1;

	memset(wanted, (int)(n % 255) + 1, bytes);
	memcpy(wanted, &n, bytes < sizeof(n) ? bytes : sizeof(n));
	return bytes;
}

static struct inode *file_filled(unsigned n)
{
	ck_assert_int_eq(make_file(gpu(0), name_of(n)), 0);
	struct inode *inode = at(gpu(0), name_of(n));
	size_t bytes = wanted_bytes(n);

	ck_assert_int_eq(write_to(inode, wanted, bytes, 0), (ssize_t)bytes);
	return inode;
}

static void expect_file(unsigned n)
{
	size_t bytes = wanted_bytes(n);

	ck_assert_int_eq(read_from(at(gpu(0), name_of(n)), found, BYTES_MAX, 0), (ssize_t)bytes);
	ck_assert_mem_eq(found, wanted, bytes);
}

static struct pool *pool_at(enum memory_place place)
{
	return volume_pool(&fixture.volumes[0], place);
}

/* Apart from the spare chunk and the chunk that is being filled. */
static bool is_compact(enum memory_place place)
{
	struct pool_usage usage = pool_usage(pool_at(place));

	return usage.shared_bytes <= usage.block_bytes + usage.block_bytes / 5 + 2 * CHUNK_ALIGN;
}

/* Memory that is just moving counts twice. */
static void wait_until_compact(enum memory_place place)
{
	UNIT_AWAIT(is_compact(place) || (tier_compact_check(&fixture), false));
	UNIT_AWAIT(!pool_drains(pool_at(place)));
	ck_assert(is_compact(place));
}

static bool is_kept(unsigned n)
{
	uint64_t state = unit_seed() + FILES + n;

	return unit_random(&state) % 10 == 0;
}

START_TEST(little_more_than_files_use)
{
	enum memory_place place = (enum memory_place)_i;

	for (unsigned n = 0; n < FILES; n++) {
		struct inode *inode = file_filled(n);
		struct inode_call call;
		uint64_t moved;

		inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
		ck_assert_int_eq(file_place(inode->file, &call.call, place, UINT64_MAX, &moved), 0);
	}
	struct pool_usage all = pool_usage(pool_at(place));

	ck_assert_uint_ge(all.shared_bytes, all.block_bytes);
	for (unsigned n = 0; n < FILES; n++)
		if (!is_kept(n))
			ck_assert_int_eq(tree_unlink(&fixture, gpu(0), name_of(n)), 0);
	ck_assert(!is_compact(place));
	uint64_t used = pool_usage(pool_at(place)).block_bytes;

	wait_until_compact(place);
	ck_assert_uint_eq(pool_usage(pool_at(place)).block_bytes, used);
	ck_assert_uint_gt(tier_compacted_bytes(&fixture), 0);
	for (unsigned n = 0; n < FILES; n++)
		if (is_kept(n))
			expect_file(n);
}
END_TEST

/* What processes have stays. A block that came later, which no process has, does not keep the chunk
 * that it shares. */
START_TEST(leased_memory_stays)
{
	enum { SMALL = 4000, LEASED = 1000 };
	struct inode *leased = NULL;
	struct inode_call call;
	int kind = 0;

	for (unsigned n = 0; n < SMALL; n++) {
		struct inode *inode = file_filled(n);

		if (n != LEASED)
			continue;
		leased = inode;
		inode_call_init(&call, &fixture, leased, worker_copier(&fixture));
		call.call.attrs.page_size = PAGE_SIZE_4K;
		kind = file_lease(leased->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT);
		ck_assert_int_eq(kind, FILE_LEASE_HOLDS);
		ck_assert_int_eq(file_allocate(leased->file, &call.call, 0, CHUNK_ALIGN, 4096), 0);
		ck_assert_int_eq(file_write(leased->file, &call.call, "more", 4, CHUNK_ALIGN), 4);
	}
	struct extents *extents = &leased->file->extents;
	struct chunk *given = extents->at[0].span.chunk;

	ck_assert_ptr_nonnull(extents->at[extents->count - 1].span.chunk->pool_private);
	for (unsigned n = 0; n < SMALL; n++)
		if (n != LEASED && n % 10)
			ck_assert_int_eq(tree_unlink(&fixture, gpu(0), name_of(n)), 0);
	wait_until_compact(PLACE_GPU);
	ck_assert_ptr_eq(extents->at[0].span.chunk, given);
	for (unsigned n = 0; n < SMALL; n += 10)
		if (n != LEASED)
			expect_file(n);
	ck_assert_int_eq(read_from(leased, found, 4, CHUNK_ALIGN), 4);
	ck_assert_mem_eq(found, "more", 4);
	file_lease_end(leased->file, (enum file_lease_kind)kind);
}
END_TEST

#define WORKERS 2
#define EACH	24
#define STEPS	1500
#define LENGTH	(100UL << 10)

static atomic_bool stop;

/* Each worker changes and reads its own files. */
static void *worker_main(void *pointer)
{
	unsigned worker = (unsigned)(uintptr_t)pointer;
	uint64_t state = unit_seed() + worker, sizes[EACH] = {0};
	unsigned char *models = calloc(EACH, LENGTH), *bytes = malloc(LENGTH);
	char name[32];

	for (unsigned step = 0; step < STEPS; step++) {
		unsigned n = unit_random(&state) % EACH;
		uint64_t size = unit_random(&state) % LENGTH;
		unsigned char *model = models + n * LENGTH;

		snprintf(name, sizeof(name), "worker%u.%u", worker, n);
		if (!is_there(gpu(0), name))
			ck_assert_int_eq(make_file(gpu(0), name), 0);
		struct inode *inode = at(gpu(0), name);

		switch (unit_random(&state) % 4) {
		case 0:
			memset(model, (int)(unit_random(&state) % 255) + 1, size);
			ck_assert_int_eq(write_to(inode, model, size, 0), (ssize_t)size);
			sizes[n] = size > sizes[n] ? size : sizes[n];
			break;
		case 1:
			ck_assert_int_eq(tree_unlink(&fixture, gpu(0), name), 0);
			memset(model, 0, LENGTH);
			sizes[n] = 0;
			break;
		default:
			ck_assert_int_eq(read_from(inode, bytes, LENGTH, 0), (ssize_t)sizes[n]);
			ck_assert_mem_eq(bytes, model, sizes[n]);
		}
	}
	free(models);
	free(bytes);
	worker_end();
	return NULL;
}

/* Compacts without a reason and a pause. */
static void *mover_main(void *pointer)
{
	struct pool *pool = pool_at(PLACE_GPU);
	uint64_t *sum = pointer;

	while (!atomic_load(&stop)) {
		struct inode *inode;
		uint32_t slot = 0;

		pool_drain(pool, 0);
		while ((inode = inode_table_next(fixture.inodes, &slot))) {
			struct inode_call call;
			uint64_t moved = 0;

			inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
			if (S_ISREG(inode->mode) && file_drained(inode->file))
				file_compact(inode->file, &call.call, &moved);
			*sum += moved;
			inode_put(&fixture, inode, 1);
		}
		pool_drain_end(pool);
	}
	worker_end();
	return NULL;
}

START_TEST(bytes_stay_the_same)
{
	pthread_t workers[WORKERS], mover;
	uint64_t moved = 0;

	ck_assert_int_eq(pthread_create(&mover, NULL, mover_main, &moved), 0);
	for (unsigned i = 0; i < WORKERS; i++)
		ck_assert_int_eq(
		    pthread_create(&workers[i], NULL, worker_main, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < WORKERS; i++)
		ck_assert_int_eq(pthread_join(workers[i], NULL), 0);
	atomic_store(&stop, true);
	ck_assert_int_eq(pthread_join(mover, NULL), 0);
	ck_assert_uint_gt(moved, 0);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("tier_compact", &tests, 120);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_loop_test(tests, little_more_than_files_use, PLACE_GPU, PLACES);
	tcase_add_test(tests, leased_memory_stays);
	tcase_add_test(tests, bytes_stay_the_same);
	return unit_main(suite);
}
