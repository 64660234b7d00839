/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: standin */
/* mount: recovery=transparent
 * needs: daemon
 * timeout: 3600
 * Daemons are killed under sharers. The sharers get their leases and keep their memory; no other
 * process can free the memory meanwhile. */
#include "tests/mount/kills.h"

#include "tests/mount/client.h"

#define FILE_BYTES (3 * MIB)

static void new_pattern_file(const char *name, uint64_t seed)
{
	int fd = new_file(name);

	pattern_write(fd, seed, 0, FILE_BYTES);
	OK(close(fd));
}

/* Leases and closes a file again and again. */
static void load_cycles(int seed)
{
	char name[32];

	sprintf(name, "cycles%d", seed);
	new_pattern_file(name, (uint64_t)seed);
	while (going_on()) {
		uint64_t began = now_ns();
		gpumem *file = lease(name, O_RDWR);
		const unsigned char *memory = host_pointer(file, FILE_BYTES);

		expect_pattern(memory, (uint64_t)seed, 0, 4096);
		expect_pattern(memory, (uint64_t)seed, FILE_BYTES - 4096, FILE_BYTES);
		gpumem_close(file);
		board_note(began);
	}
	int fd = OK(open(name, O_RDWR));

	/* No process has a lease any more. */
	OK(ftruncate(fd, 0));
	OK(close(fd));
}

/* Holds a lease all the time: no other load can cut the file. */
static void load_holder(int seed)
{
	uint64_t version = 0;

	new_pattern_file("held", (uint64_t)seed);
	gpumem *file = lease("held", O_RDWR);
	unsigned char *memory = host_pointer(file, FILE_BYTES);
	int fd = OK(open("held", O_RDWR));

	while (going_on()) {
		uint64_t got, began = now_ns();

		memcpy(memory + 8, &(uint64_t){++version}, sizeof(version));
		OK(pread(fd, &got, sizeof(got), 8));
		EQUAL(got, version);
		FAILS(EBUSY, ftruncate(fd, 1000));
		FAILS(EBUSY, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB));
		board_note(began);
	}
	gpumem_close(file);
	OK(ftruncate(fd, 1000));
	OK(close(fd));
}

/* Of a file without a name, the sharer has the last reference. */
static void load_nameless(int seed)
{
	while (going_on()) {
		new_pattern_file("nameless", (uint64_t)seed);
		gpumem *file = lease("nameless", O_RDONLY);

		OK(unlink("nameless"));
		sleep_ms(20);
		const unsigned char *memory = host_pointer(file, FILE_BYTES);

		expect_pattern(memory, (uint64_t)seed, 0, FILE_BYTES);
		gpumem_close(file);
	}
}

/* A private copy keeps its bytes, whatever happens to the file and to daemons. */
static void load_copies(int seed)
{
	new_pattern_file("copied", (uint64_t)seed);
	int fd = OK(open("copied", O_RDWR));

	OK(setresuid(65534, 65534, 65534));
	for (uint64_t turn = 0; going_on(); turn++) {
		write_all(fd, &turn, sizeof(turn), 0);
		gpumem *file = lease("copied", O_RDONLY);
		const unsigned char *memory = host_pointer(file, FILE_BYTES);

		CHECK(info_of(file).flags & GPUMEM_INFO_PRIVATE);
		write_all(fd, &(uint64_t){UINT64_MAX}, sizeof(turn), 0);
		sleep_ms(20);
		CHECK(memcmp(memory, &turn, sizeof(turn)) == 0);
		expect_pattern(memory, (uint64_t)seed, sizeof(turn), FILE_BYTES);
		gpumem_close(file);
	}
}

/* A leased file grows. */
static void load_growing(int seed)
{
	(void)seed;
	while (going_on()) {
		int fd = new_file("growing");

		pattern_write(fd, 1, 0, FILE_BYTES);
		gpumem *file = lease("growing", O_RDWR);

		pattern_write(fd, 1, FILE_BYTES, FILE_BYTES);
		GOOD(gpumem_extend(file));
		expect_pattern(host_pointer(file, 2 * FILE_BYTES), 1, 0, 2 * FILE_BYTES);
		gpumem_close(file);
		OK(close(fd));
		OK(unlink("growing"));
	}
}

static void sharers_keep_what_they_have(void)
{
	static void (*const loads[])(int) = {load_cycles,   load_cycles,  load_holder,
					     load_nameless, load_growing, load_copies};

	under_kills(40, loads, sizeof(loads) / sizeof(loads[0]));
}

CLIENT_PROG(TEST(sharers_keep_what_they_have))
