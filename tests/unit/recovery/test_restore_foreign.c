/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A file whose memory another program allocated, under the next daemon: wherever the last one was
 * stopped, the program's bytes are as the program left them. */
#include <fcntl.h>
#include <sys/mman.h>

#include "backend/pool.h"
#include "tests/unit/restore_actor.h"

#define PIECE	   (4 * MIB)
#define SKIP	   (1 * MIB + 512)
#define SIZE	   (5 * MIB + 7)
#define FROZEN_MAX 100

static struct held held, frozen[FROZEN_MAX];
static struct fdstore_ops fdstore;
static unsigned n_frozen;

static char *memory; /* of the program, two pieces */
static struct file_piece pieces[2];
static const struct file_adoption adoption = {pieces, 2, SKIP, SIZE, false, false};

static void freeze(void *of)
{
	(void)of;
	ck_assert_uint_lt(n_frozen, FROZEN_MAX);
	held_freeze(&held, FREEZE_JOURNAL, &frozen[n_frozen++]);
}

static void up(void)
{
	held_init(&held);
	fdstore = held_ops(&held);
	ck_assert_int_eq(daemon_up(&fixture, &fdstore, FS_MOUNT_KEPT), 0);
	memory = mmap(NULL, 2 * PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned i = 0; i < 2; i++) {
		int fd = memfd_create("other program", MFD_CLOEXEC | MFD_ALLOW_SEALING);

		ck_assert_int_eq(ftruncate(fd, PIECE), 0);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
		ck_assert_ptr_ne(mmap(memory + i * PIECE, PIECE, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, fd, 0),
				 MAP_FAILED);
		pieces[i] = (struct file_piece){PIECE, fd};
	}
	memset(memory, 0x5a, 2 * PIECE);
}

static void down(void)
{
	fixture.journal->fault = NULL;
	daemon_down(&fixture);
	held_free(&held);
	for (unsigned i = 0; i < 2; i++)
		if (pieces[i].fd >= 0)
			close(pieces[i].fd);
	munmap(memory, 2 * PIECE);
}

static struct inode *file_create(const char *name)
{
	struct tree_new what = {.mode = S_IFREG | 0600};
	struct inode *inode;

	ck_assert_int_eq(tree_create(&fixture, inode_find(&fixture, fixture.volumes[0].root_ino),
				     name, &what, &inode),
			 0);
	return inode;
}

static int file_take(struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	return file_adopt(inode->file, &call.call, &adoption);
}

static void expect_untouched(void)
{
	for (uint64_t i = 0; i < 2 * PIECE; i++)
		if (memory[i] != 0x5a)
			ck_abort_msg("byte %lu has changed", i);
}

/* The size of the file under the next daemon. */
static uint64_t expect_restored(struct held *found)
{
	static struct fs next;
	static struct fdstore_ops other;
	static char bytes[SIZE + 1];
	struct inode *inode;
	struct inode_call call;

	other = held_ops(found);
	ck_assert_int_eq(daemon_up(&next, &other, FS_MOUNT_KEPT), 0);
	struct inode *dir = inode_find(&next, next.volumes[0].root_ino);

	ck_assert_int_eq(tree_lookup(&next, dir, "shared", &inode), 0);
	inode_call_init(&call, &next, inode, worker_copier(&next));
	uint64_t size = file_size(inode->file);

	ck_assert_uint_le(size, SIZE);
	ck_assert_int_eq(file_read(inode->file, &call.call, bytes, sizeof(bytes), 0), size);
	if (file_has_foreign_memory(inode->file)) {
		ck_assert_int_eq(file_truncate(inode->file, &call.call, size + 1), -EPERM);
		ck_assert_uint_eq(pool_usage(next.volumes[0].pool).span_bytes, 2 * PIECE);
	}
	if (size)
		ck_assert_mem_eq(bytes, memory + SKIP, size);
	inode_put(&next, inode, 1);
	daemon_down(&next);
	held_free(found);
	return size;
}

START_TEST(program_keeps_its_bytes)
{
	struct inode *inode = file_create("shared");
	uint64_t seed = hash_seed;

	handle_open(inode);
	freeze(NULL);
	fixture.journal->fault = freeze;
	ck_assert_int_eq(file_take(inode), 0);
	fixture.journal->fault = NULL;
	freeze(NULL);
	checkpoint(&fixture);
	freeze(NULL);
	ck_assert_uint_gt(n_frozen, 3);
	for (unsigned i = 0; i < n_frozen; i++) {
		uint64_t size = expect_restored(&frozen[i]);

		expect_untouched();
		hash_seed = seed;
		ck_assert(size == SIZE || i < n_frozen - 2);
	}
	handle_close(inode);
	ck_assert_int_eq(
	    tree_unlink(&fixture, inode_find(&fixture, fixture.volumes[0].root_ino), "shared"), 0);
	inode_put(&fixture, inode, 1);
	ck_assert_uint_eq(pool_usage(fixture.volumes[0].pool).chunk_bytes, 0);
	expect_untouched();
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("restore_foreign", &tcase, 60);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_test(tcase, program_keeps_its_bytes);
	return unit_main(suite);
}
