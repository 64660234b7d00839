/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A disk that does not answer stops the files that leave for the disk, and no others: the other
 * GPU, and moves between the same GPU and system memory, go on. */
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/attributes/inode_attributes.h"
#include "fs/file/internal.h"
#include "fs/tier/tier.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define MIB	  (1ULL << 20)
#define FILE_SIZE (20 * MIB) /* three fit into a GPU of 64 MiB */

enum { ALICE = 1001, BOB = 1002 };

static atomic_bool disk_stops, disk_waits, is_done;
static char *data;
static char disk_dir[32];

/* In place of libc's: a disk whose writes wait while disk_stops. */
ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
	(void)flags;
	while (atomic_load(&disk_stops)) {
		atomic_store(&disk_waits, true);
		usleep(1000);
	}
	return pwritev(fd, pieces, count, offset);
}

static void up(void)
{
	char options[256];
	char *argv[] = {"gpumemfs", "/tmp", "-o", options, "-o", "log_level=error", NULL};

	strcpy(disk_dir, "/dev/shm/gpumemfs-turns-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(disk_dir));
	snprintf(options, sizeof(options),
		 "backend=host,host_gpus=2,host_size=64M,spill=host:160M,disk:200M,user_spill=40M,"
		 "spool=%s",
		 disk_dir);
	memset(&fixture, 0, sizeof(fixture));
	ck_assert_int_eq(options_parse(6, argv, &fixture.options), 0);
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	fixture.can.max_write = 65536;
	ck_assert_int_eq(fs_open(&fixture), 0);
	data = malloc(FILE_SIZE);
	memset(data, 7, FILE_SIZE);
}

static void down(void)
{
	char remove[sizeof(disk_dir) + 16];

	free(data);
	fixture_down();
	snprintf(remove, sizeof(remove), "rm -r %s", disk_dir);
	ck_assert_int_eq(system(remove), 0);
}

static struct inode *filled(unsigned volume, const char *name, uid_t uid)
{
	struct inode *inode;
	struct inode_call call;

	ck_assert_int_eq(make_file(gpu(volume), name), 0);
	inode = at(gpu(volume), name);
	atomic_store(&inode->uid, uid);
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(file_truncate(inode->file, &call.call, FILE_SIZE), 0);
	ck_assert_int_eq(file_write(inode->file, &call.call, data, FILE_SIZE, 0), FILE_SIZE);
	return inode;
}

static int reside(struct inode *inode, const char *place)
{
	return inode_attr_set(&fixture, worker_copier(&fixture), inode, ATTR_RESIDENT, place,
			      strlen(place), 0);
}

/* The first file leaves for system memory when there are too many, and comes back, for which
 * another leaves. */
static void fill_volume(unsigned volume)
{
	struct inode *first = filled(volume, "n", BOB), *last = first;

	atomic_store(&first->file->used, 1);
	for (char name[2] = "o"; !file_bytes_in(first->file, PLACE_HOST); name[0]++)
		last = filled(volume, name, BOB);
	ck_assert_uint_eq(file_bytes_in(last->file, PLACE_HOST), 0);
	ck_assert_int_eq(reside(first, "gpu"), 0);
	ck_assert_uint_eq(file_bytes_in(first->file, PLACE_HOST), 0);
}

/* More than a GPU and Alice's part of system memory. */
static void *alice_writes(void *unused)
{
	for (char name[2] = "a"; name[0] <= 'f'; name[0]++)
		filled(0, name, ALICE);
	atomic_store(&is_done, true);
	worker_end();
	return unused;
}

static void *alice_moves(void *unused)
{
	for (char name[2] = "a"; name[0] <= 'c'; name[0]++)
		ck_assert_int_eq(reside(filled(0, name, ALICE), "host"), 0);
	atomic_store(&is_done, true);
	worker_end();
	return unused;
}

/* Calls work while a thread of Alice waits for the disk. */
static void beside(void *(*alice)(void *), void (*work)(unsigned volume), unsigned volume)
{
	pthread_t thread;

	atomic_store(&disk_waits, false);
	atomic_store(&is_done, false);
	atomic_store(&disk_stops, true);
	ck_assert_int_eq(pthread_create(&thread, NULL, alice, NULL), 0);
	UNIT_AWAIT(atomic_load(&disk_waits));
	work(volume);
	ck_assert(!atomic_load(&is_done));
	atomic_store(&disk_stops, false);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert(atomic_load(&is_done));
	ck_assert_uint_gt(pool_usage(fixture.volumes[0].disk).span_bytes, 0);
}

START_TEST(the_other_gpu_goes_on)
{
	beside(alice_writes, fill_volume, 1);
}
END_TEST

START_TEST(system_memory_goes_on)
{
	beside(alice_moves, fill_volume, 0);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("tier_turns", &tests, 60);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, the_other_gpu_goes_on);
	tcase_add_test(tests, system_memory_goes_on);
	return unit_main(suite);
}
