/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/system/ipc_memory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/unit.h"

static struct ipc_memory memory_some(void)
{
	struct ipc_memory memory = {.bytes = 12345};

	for (unsigned i = 0; i < sizeof(memory.handle); i++)
		memory.handle[i] = (uint8_t)(i * 7);
	return memory;
}

START_TEST(read_as_sealed)
{
	struct ipc_memory memory = memory_some(), found = {0};
	int fd = ipc_memory_seal(&memory);

	ck_assert_int_ge(fd, 0);
	ck_assert(ipc_memory_read(fd, &found));
	ck_assert_uint_eq(found.bytes, memory.bytes);
	ck_assert_mem_eq(found.handle, memory.handle, sizeof(memory.handle));
	ck_assert_int_lt(pwrite(fd, "x", 1, 20), 0);
	ck_assert_int_lt(ftruncate(fd, 0), 0);
	close(fd);
}
END_TEST

/* A copy that another program could still change. */
static int unsealed_copy(int fd)
{
	char bytes[256];
	int copy = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ssize_t n = pread(fd, bytes, sizeof(bytes), 0);

	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(pwrite(copy, bytes, (size_t)n, 0), n);
	return copy;
}

START_TEST(other_descriptors)
{
	struct ipc_memory memory = memory_some();
	int fd = ipc_memory_seal(&memory), ends[2], copy = unsealed_copy(fd);
	int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert(!ipc_memory_read(-1, &memory));
	ck_assert(!ipc_memory_read(9999, &memory));
	ck_assert(!ipc_memory_read(ends[0], &memory)); /* does not wait */
	ck_assert(!ipc_memory_read(copy, &memory));
	ck_assert_int_eq(fcntl(copy, F_ADD_SEALS, all & ~F_SEAL_WRITE), 0);
	ck_assert(!ipc_memory_read(copy, &memory));
	close(copy);
	copy = unsealed_copy(fd);
	ck_assert_int_eq(pwrite(copy, "GPUM", 4, 0), 4);
	ck_assert_int_eq(fcntl(copy, F_ADD_SEALS, all), 0);
	ck_assert(!ipc_memory_read(copy, &memory));
	close(copy);
	copy = unsealed_copy(fd);
	ck_assert_int_eq(ftruncate(copy, 40), 0);
	ck_assert_int_eq(fcntl(copy, F_ADD_SEALS, all), 0);
	ck_assert(!ipc_memory_read(copy, &memory));
	close(copy);
	close(ends[0]);
	close(ends[1]);
	close(fd);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("ipc memory", &tcase, 30);

	tcase_add_test(tcase, read_as_sealed);
	tcase_add_test(tcase, other_descriptors);
	return unit_main(suite);
}
