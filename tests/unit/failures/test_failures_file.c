/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Bytes of files in gpuN/ and host/, while an allocation, a system call or a call of the driver
 * fails. */
#include "tests/unit/failures/daemon.h"
#include "tests/unit/failures/requests.h"

#define OPTIONS "backend=host,host_gpus=2,host_size=64M,spill=host:48M,bar=off"

static uint64_t top_of(unsigned volume)
{
	return gpu(volume)->ino;
}

static void read_back(const struct node *file, uint64_t offset, uint32_t bytes)
{
	TRY(do_read(file, offset, bytes));
	ck_assert_uint_eq(answer.bytes, bytes);
	for (uint32_t at = 0; at < bytes; at++)
		ck_assert_int_eq(content[at], 'a' + (int)(offset / 4096 % 26));
}

static void change_bytes(const struct node *file)
{
	TRY(do_write(file, 0, 4096));
	TRY(do_write(file, 3 * MIB, 8192));
	read_back(file, 0, 4096);
	read_back(file, 3 * MIB, 8192);
	TRY(do_allocate(file, 0, 4 * MIB, 3 * MIB));
	TRY(do_allocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, MIB, 4 * MIB));
	TRY(do_allocate(file, FALLOC_FL_ZERO_RANGE, 100, 10000));
	TRY(do_resize(file, 9 * MIB));
	TRY(do_write(file, 8 * MIB, 60000));
	read_back(file, 8 * MIB, 60000);
	TRY(do_resize(file, 12345));
}

static void change_layout(const struct node *file)
{
	TRY(do_set(file, "user.gpumem.page_size", "2M"));
	TRY(do_set(file, "user.gpumem.resident", "host"));
	TRY(do_set(file, "user.gpumem.page_size", "4K"));
	TRY(do_set(file, "user.gpumem.resident", "disk"));
	TRY(do_write(file, 100000, 50000));
	TRY(do_set(file, "user.gpumem.resident", "gpu"));
	TRY(do_remove(file, "user.gpumem.page_size"));
	TRY(do_get(file, "user.gpumem.extents"));
}

static void copy_between(const struct node *one, const struct node *other)
{
	TRY(do_copy(one, 0, other, 0, 4096));
	TRY(do_copy(one, 0, other, 2 * MIB + 100, 10000));
	TRY(do_copy(other, 0, one, 5 * MIB, 2 * MIB));
}

static void bytes(void)
{
	struct node file = {0}, other = {0}, system = {0}, small = {0};

	scenario_up(OPTIONS);
	TRY(do_create(top_of(0), "file", &file));
	TRY(do_create(top_of(1), "other", &other));
	TRY(do_create(top_of(2), "system", &system));
	TRY(do_create(top_of(0), "small", &small));
	TRY(do_write(&small, 0, 100));
	change_bytes(&file);
	change_layout(&file);
	TRY(do_write(&file, 0, 20000));
	change_bytes(&system);
	TRY(do_write(&system, 0, 20000));
	copy_between(&file, &small);
	copy_between(&file, &other);
	copy_between(&file, &system);
	copy_between(&system, &other);
	TRY(do_write(&other, 0, 4096));
	TRY(do_rename(top_of(0), "file", top_of(1), "file", 0));
	TRY(do_rename(top_of(1), "file", top_of(2), "file", 0));
	TRY(do_rename(top_of(2), "system", top_of(0), "system", 0));
	read_back(&other, 0, 4096);
	TRY(do_unlink(top_of(1), "other"));
	TRY(do_write(&other, 0, 4096));
	TRY(do_release(&other));
	TRY(do_release(&file));
	TRY(do_release(&system));
	TRY(do_unlink(top_of(2), "file"));
	scenario_down();
}

int main(void)
{
	return failures_main("failures of bytes", bytes, true);
}
