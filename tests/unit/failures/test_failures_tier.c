/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files leave full GPUs for system memory and a disk, move back and move together, while an
 * allocation or system call fails. */
#include "fs/tier/tier.h"
#include "tests/unit/failures/daemon.h"
#include "tests/unit/failures/requests.h"

/* Two files of 6 MiB fit into a GPU, and a third into the system memory below. */
#define OPTIONS                                                                                    \
	"backend=host,host_gpus=2,host_size=14M,spill=host:8M,user_spill=100%,bar=off,max_chunk="  \
	"2M"
#define FILE_BYTES (6 * MIB)

static int fill(const struct node *file)
{
	int error = do_resize(file, FILE_BYTES);

	for (uint64_t at = 0; !error && at < FILE_BYTES; at += MIB)
		error = do_write(file, at, 4096);
	return error;
}

static int check(const struct node *file)
{
	int n = 0;

	for (uint64_t at = 0; n >= 0 && at < FILE_BYTES; at += MIB) {
		n = do_read(file, at, 4096);
		ck_assert(n < 0 || content[100] == 'a' + (int)(at / 4096 % 26));
	}
	return n;
}

/* Every second file of a single block goes: then the rest move together. */
static void compact(void)
{
	struct node small[8] = {0};
	struct inode_call call;
	uint64_t moved;

	for (unsigned i = 0; i < 8; i++) {
		char name[16];

		snprintf(name, sizeof(name), "small%u", i);
		TRY(do_create(gpu(1)->ino, name, &small[i]));
		TRY(do_write(&small[i], 0, i % 2 ? 60000 : 30000));
	}
	for (unsigned i = 0; i < 8; i += 2) {
		char name[16];

		snprintf(name, sizeof(name), "small%u", i);
		TRY(do_unlink(gpu(1)->ino, name));
		TRY(do_release(&small[i]));
	}
	pool_drain(fixture.volumes[1].pool, 0);
	for (unsigned i = 1; i < 8; i += 2) {
		struct inode *inode = inode_find(&fixture, small[i].ino);

		inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
		TRY(file_compact(inode->file, &call.call, &moved));
	}
	pool_drain_end(fixture.volumes[1].pool);
}

static void tiers(void)
{
	struct node files[5] = {0};

	scenario_up(OPTIONS);
	for (unsigned i = 0; i < 5; i++) {
		char name[16];

		snprintf(name, sizeof(name), "file%u", i);
		TRY(do_create(gpu(0)->ino, name, &files[i]));
		TRY(do_chown(&files[i], 3 + i % 2));
		TRY(fill(&files[i]));
	}
	for (unsigned i = 0; i < 5; i++)
		TRY(check(&files[i]));
	TRY(do_set(&files[0], "user.gpumem.resident", "gpu"));
	TRY(do_set(&files[1], "user.gpumem.resident", "disk"));
	TRY(tier_free(&fixture, &fixture.volumes[0], 4 * MIB));
	TRY(do_chown(&files[1], 5));
	TRY(check(&files[1]));
	TRY(do_rename(gpu(0)->ino, "file1", gpu(1)->ino, "file1", 0));
	TRY(do_allocate(&files[2], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, MIB, 3 * MIB));
	TRY(do_unlink(gpu(0)->ino, "file3"));
	TRY(do_release(&files[3]));
	compact();
	scenario_down();
}

int main(void)
{
	return failures_main("failures of tiers", tiers, true);
}
