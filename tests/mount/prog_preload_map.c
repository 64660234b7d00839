/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin */
/* backends: host standin vulkan cuda
 * Mappings under the preload library: a mapping shows the file's own memory, and every call on the
 * mapping behaves as in the kernel. */
#include "tests/mount/growth.h"
#include "tests/mount/preload.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* Value for GPUMEM_PRELOAD_AFTER: only mappings take leases, never reads and writes. */
#define NEVER "1000000000000"

static unsigned char *map(int fd, size_t bytes, int protection, int flags, off_t offset)
{
	unsigned char *at = mmap(NULL, bytes, protection, flags, fd, offset);

	if (at == MAP_FAILED)
		FAIL("mmap: %s", strerror(errno));
	return at;
}

static void expect(const unsigned char *at, uint64_t seed, off_t offset, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != pattern_at(seed, offset + i))
			FAIL("byte %lld is %02x, wanted %02x", (long long)offset + (long long)i,
			     at[i], pattern_at(seed, offset + i));
}

/* On a GPU a private mapping is the kernel's, because loads from the memory itself are slow. */
static bool on_gpu(void)
{
	return strcmp(getenv("BACKEND"), "host") != 0;
}

static int data_file(size_t bytes)
{
	int fd = new_file("file");

	pattern_write(fd, 1, 0, bytes);
	return fd;
}

/* Reads by a system call: an invalid address gives EFAULT instead of a signal. */
static bool readable(const void *at)
{
	int pipes[2];

	OK(pipe(pipes));
	bool good = write(pipes[1], at, 1) == 1;
	OK(close(pipes[0]));
	OK(close(pipes[1]));
	return good;
}

/* No msync: another process reads stored bytes at once. */
static void stores_need_no_msync(void)
{
	int fd = data_file(3 * MIB);
	unsigned char *at = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);

	CHECK(leased("file"));
	expect(at, 1, 0, 3 * MIB);
	pattern_fill(at + MIB, 1000, 2, MIB);
	OK(msync(at, 3 * MIB, MS_SYNC));
	FAILS(EINVAL, msync(at, 3 * MIB, MS_SYNC | MS_ASYNC));
	int reader = OK(open("file", O_RDONLY | O_DIRECT));
	pattern_check(reader, 2, MIB, 1000);
	pattern_write(fd, 3, 2 * MIB, 1000);
	expect(at + 2 * MIB, 3, 2 * MIB, 1000);
	OK(munmap(at, 3 * MIB));
	CHECK(!leased("file") && !readable(at));
}

static void set_long_ago(int fd)
{
	const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	OK(futimens(fd, old));
}

static void stores_move_mtime(void)
{
	int fd = data_file(3 * MIB), reader = OK(open("file", O_RDONLY));

	set_long_ago(fd);
	unsigned char *at = map(reader, 3 * MIB, PROT_READ, MAP_SHARED, 0);

	expect(at, 1, 0, 3 * MIB);
	EQUAL(stat_of("file").st_mtime, 1000);
	OK(munmap(at, 3 * MIB));
	EQUAL(stat_of("file").st_mtime, 1000);
	at = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	at[MIB] = 'x';
	OK(msync(at, 3 * MIB, MS_SYNC));
	CHECK(stat_of("file").st_mtime > 1000);
	set_long_ago(fd);
	at[MIB] = 'y';
	OK(munmap(at, 3 * MIB));
	CHECK(stat_of("file").st_mtime > 1000);
	struct timespec settled = stat_of("file").st_mtim, again = stat_of("file").st_mtim;
	CHECK(settled.tv_sec == again.tv_sec && settled.tv_nsec == again.tv_nsec);
}

static void parts_of_files_of_several_chunks(void)
{
	int fd = new_file("file");

	for (int i = 0; i < 6; i++)
		pattern_write(fd, 1, i * 4 * MIB, 4 * MIB);
	unsigned char *at = map(fd, 19 * MIB, PROT_READ, MAP_SHARED, 3 * MIB + 4096);
	unsigned char *other = map(fd, 19 * MIB, PROT_READ, MAP_PRIVATE, 3 * MIB + 4096);

	CHECK(at != other && leased("file"));
	expect(at, 1, 3 * MIB + 4096, 19 * MIB);
	expect(other, 1, 3 * MIB + 4096, 19 * MIB);
	OK(close(fd));
	CHECK(leased("file"));
}

static void unmapping_in_parts(void)
{
	int fd = data_file(3 * MIB);
	unsigned char *at = map(fd, 3 * MIB, PROT_READ, MAP_SHARED, 0);

	OK(munmap(at + MIB, MIB));
	CHECK(!readable(at + MIB) && !readable(at + 2 * MIB - 1));
	expect(at, 1, 0, MIB);
	expect(at + 2 * MIB, 1, 2 * MIB, MIB);
	OK(munmap(at, MIB));
	CHECK(leased("file"));
	OK(munmap(at + 2 * MIB, MIB));
	CHECK(!leased("file"));
}

static void growing_a_part(void)
{
	int fd = data_file(5 * MIB);
	unsigned char *at = map(fd, 3 * MIB, PROT_READ, MAP_SHARED, 0);

	OK(munmap(at + MIB, MIB));
	unsigned char *part = mremap(at + 2 * MIB, MIB, 3 * MIB, MREMAP_MAYMOVE);

	CHECK(part != MAP_FAILED && leased("file"));
	expect(part, 1, 2 * MIB, 3 * MIB);
	expect(at, 1, 0, MIB);
}

static void protections_hold(void)
{
	int fd = data_file(3 * MIB), reader = OK(open("file", O_RDONLY));
	unsigned char *at = map(reader, 3 * MIB, PROT_READ, MAP_SHARED, 0);

	FAILS(EACCES, mprotect(at, 4096, PROT_READ | PROT_WRITE));
	FAILS(EACCES, mmap(NULL, MIB, PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED ? -1 : 0);
	at = map(fd, 3 * MIB, PROT_READ, MAP_SHARED, 0);
	OK(mprotect(at + MIB, MIB, PROT_NONE));
	CHECK(!readable(at + MIB) && readable(at + MIB - 1) && readable(at + 2 * MIB));
	OK(mprotect(at, 3 * MIB, PROT_READ | PROT_WRITE));
	at[MIB] = 'x';
	char byte;
	read_all(fd, &byte, 1, MIB);
	EQUAL(byte, 'x');
}

static void private_stays_private(void)
{
	int fd = data_file(3 * MIB);
	unsigned char *at = map(fd, 3 * MIB, PROT_READ, MAP_PRIVATE, 0);

	EQUAL(leased("file"), !on_gpu());
	OK(mprotect(at, 3 * MIB, PROT_READ | PROT_WRITE));
	expect(at, 1, 0, 3 * MIB);
	pattern_fill(at, MIB, 9, 0);
	expect(at, 9, 0, MIB);
	pattern_check(fd, 1, 0, 3 * MIB);
}

/* Leasing a small file would cost more than reading the file. */
static void small_private_ones_are_the_kernel_s(void)
{
	int fd = data_file(3 * MIB);
	unsigned char *at = map(fd, MIB - 4096, PROT_READ, MAP_PRIVATE, MIB);

	CHECK(!leased("file"));
	expect(at, 1, MIB, MIB - 4096);
	pattern_write(fd, 2, MIB, MIB);
	expect(at, 2, MIB, MIB - 4096);
	OK(ftruncate(fd, MIB));
	OK(munmap(at, MIB - 4096));
	at = map(fd, MIB, PROT_READ, MAP_PRIVATE, 0);
	EQUAL(leased("file"), !on_gpu());
	expect(at, 1, 0, MIB);
}

static void store_elsewhere(int unused)
{
	(void)unused;
	int fd = OK(open("file", O_RDWR));
	unsigned char *at = map(fd, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 0);

	CHECK(leased("file"));
	pattern_fill(at, 4096, 3, 0);
}

/* A mapping shows the bytes that another process stored directly, without a call to the kernel. */
static void small_private_ones_show_earlier_stores(void)
{
	int fd = data_file(100);
	OK(ftruncate(fd, 4096));
	unsigned char *before = map(fd, 4096, PROT_READ, MAP_PRIVATE, 0);

	expect(before, 1, 0, 100);
	spawn(store_elsewhere, 0);
	join_all(1);
	unsigned char *after = map(fd, 4096, PROT_READ, MAP_PRIVATE, 0);
	CHECK(!leased("file"));
	expect(after, 3, 0, 4096);
}

/* Beside a mapping of the memory itself, all mappings of the file in a process are of the same
 * kind. */
static void small_private_ones_beside_shared_ones(void)
{
	int fd = data_file(3 * MIB);
	unsigned char *shared = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	unsigned char *at = map(fd, MIB - 4096, PROT_READ, MAP_PRIVATE, 0);

	expect(at, 1, 0, MIB - 4096);
	pattern_fill(shared, 4096, 5, 0);
	expect(at, 5, 0, 4096);
}

static void growing_by_mremap(void)
{
	int fd = data_file(3 * MIB);
	unsigned char *at = map(fd, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, MIB);

	at = mremap(at, MIB, 2 * MIB, MREMAP_MAYMOVE);
	CHECK(at != MAP_FAILED && leased("file"));
	expect(at, 1, MIB, 2 * MIB);
	at = mremap(at, 2 * MIB, 4096, 0);
	CHECK(at != MAP_FAILED && !readable(at + 4096));
	expect(at, 1, MIB, 4096);
	pattern_write(fd, 1, 3 * MIB, 9 * MIB);
	at = mremap(at, 4096, 11 * MIB, MREMAP_MAYMOVE);
	CHECK(at != MAP_FAILED && leased("file"));
	expect(at, 1, MIB, 11 * MIB);
	/* Beyond the end of the file the library replaces the mapping by a mapping of the kernel
	 * with the same bytes. */
	at = mremap(at, 11 * MIB, 20 * MIB, MREMAP_MAYMOVE);
	CHECK(at != MAP_FAILED && !leased("file"));
	expect(at, 1, MIB, 11 * MIB);
}

static void at_an_address(void)
{
	int fd = data_file(3 * MIB);
	unsigned char *room =
	    mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	room[0] = 'a';
	room[3 * MIB] = 'z';
	CHECK(mmap(room + MIB, 2 * MIB, PROT_READ, MAP_SHARED | MAP_FIXED, fd, MIB) == room + MIB);
	CHECK(leased("file"));
	expect(room + MIB, 1, MIB, 2 * MIB);
	EQUAL(room[0], 'a');
	EQUAL(room[3 * MIB], 'z');
	FAILS(EEXIST,
	      mmap(room, MIB, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED
		  ? -1
		  : 0);
	CHECK(mmap(room, 4 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      room);
	EQUAL(room[MIB], 0);
	CHECK(!leased("file"));
}

static void beyond_the_end_is_the_kernel_s(void)
{
	int fd = data_file(3 * MIB + 5);
	unsigned char *at = map(fd, 4 * MIB, PROT_READ, MAP_SHARED, 0);

	CHECK(!leased("file"));
	expect(at, 1, 0, 3 * MIB + 5);
	CHECK(readable(at + 3 * MIB + 4095) && !readable(at + 3 * MIB + 4096));
}

/* All mappings of a file show stores through any of them. */
static void stores_show_in_all_mappings(void)
{
	int fd = data_file(5 * MIB);
	unsigned char *read = map(fd, 5 * MIB, PROT_READ, MAP_SHARED, 0);
	unsigned char *grown = map(fd, 2 * MIB, PROT_READ, MAP_SHARED, MIB);

	expect(read, 1, 0, 5 * MIB);
	expect(grown, 1, MIB, 2 * MIB);
	grown = mremap(grown, 2 * MIB, 3 * MIB, MREMAP_MAYMOVE);
	CHECK(grown != MAP_FAILED);
	OK(mprotect(grown, 3 * MIB, PROT_READ | PROT_WRITE));
	/* Calls may drop pages of the kernel; these loads bring them back. */
	expect(read + MIB, 1, MIB, 4096);
	pattern_fill(grown, 4096, 2, MIB);
	expect(read + MIB, 2, MIB, 4096);
	OK(munmap(grown, 3 * MIB));
	OK(munmap(read, 5 * MIB));
	CHECK(!leased("file"));
}

/* A part that alone would not be worth the import of the file. */
static void a_small_part_becomes_writable(void)
{
	int fd = data_file(9 * MIB);
	unsigned char *at = map(fd, 9 * MIB, PROT_READ, MAP_SHARED, 0);
	unsigned char *other = map(fd, 9 * MIB, PROT_READ, MAP_SHARED, 0);

	expect(at, 1, 0, 9 * MIB);
	expect(other, 1, 0, 9 * MIB);
	OK(mprotect(at + MIB, 4096, PROT_READ | PROT_WRITE));
	expect(other + MIB, 1, MIB, 4096);
	pattern_fill(at + MIB, 4096, 2, MIB);
	expect(other + MIB, 2, MIB, 4096);
	int reader = OK(open("file", O_RDONLY));
	pattern_check(reader, 2, MIB, 4096);
	unsigned char *part = map(fd, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, MIB);
	pattern_fill(part, 4096, 3, MIB);
	expect(at + MIB, 3, MIB, 4096);
	CHECK(leased("file"));
}

/* A mapping that only the kernel can make. */
static void stores_show_beside_the_kernel_s(void)
{
	int fd = data_file(3 * MIB + 5);
	unsigned char *at = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	unsigned char *longer = map(fd, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);

	expect(longer, 1, 0, 3 * MIB + 5);
	pattern_fill(at, 4096, 2, 0);
	expect(longer, 2, 0, 4096);
	pattern_fill(longer, 4096, 3, 0);
	expect(at, 3, 0, 4096);
}

/* A program truncates a file that it has mapped: databases do this. */
static void truncating_what_is_mapped(void)
{
	int fd = data_file(3 * MIB);
	unsigned char *at = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);

	pattern_fill(at, MIB, 2, 0);
	OK(ftruncate(fd, MIB));
	EQUAL(size_of(fd), MIB);
	CHECK(!readable(at + MIB));
	expect(at, 2, 0, MIB);
	pattern_write(fd, 3, 0, 5000);
	expect(at, 3, 0, 5000);
	at[6000] = 'x';
	OK(msync(at, MIB, MS_SYNC));
	char byte;
	read_all(fd, &byte, 1, 6000);
	EQUAL(byte, 'x');
}

static unsigned char *common;

static void store_in_child(int unused)
{
	(void)unused;
	pattern_fill(common, MIB, 4, 0);
	OK(msync(common, 3 * MIB, MS_SYNC));
}

static void children_share_it(void)
{
	int fd = data_file(3 * MIB);

	common = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	spawn(store_in_child, 0);
	join_all(1);
	expect(common, 4, 0, MIB);
	pattern_check(fd, 4, 0, MIB);
	pattern_check(fd, 1, MIB, 2 * MIB);
}

static int turns[2][2]; /* pipes: to the child, and to the parent */

static void turn_wait(int side)
{
	char byte;

	EQUAL(read(turns[side][0], &byte, 1), 1);
}

static void turn_pass(int side)
{
	EQUAL(write(turns[!side][1], "x", 1), 1);
}

/* The child has read the page before the parent stores there. */
static void see_stores(int unused)
{
	(void)unused;
	expect(common, 1, 0, 4096);
	turn_pass(0);
	turn_wait(0);
	expect(common, 5, 0, 4096);
	pattern_fill(common, 4096, 6, 0);
	turn_pass(0);
}

/* Neither side calls msync. */
static void stores_are_shared_with_children(void)
{
	int fd = data_file(3 * MIB);

	common = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	OK(pipe(turns[0]));
	OK(pipe(turns[1]));
	spawn(see_stores, 0);
	OK(close(turns[1][1])); /* then a child that fails ends the wait */
	turn_wait(1);
	pattern_fill(common, 4096, 5, 0);
	turn_pass(1);
	turn_wait(1);
	expect(common, 6, 0, 4096);
	join_all(1);
	for (int i = 0; i < 3; i++)
		OK(close(turns[i / 2][i % 2]));
	OK(munmap(common, 3 * MIB));
	OK(close(fd));
}

static void do_nothing(int unused)
{
	(void)unused;
}

static void see_store_of_parent(int unused)
{
	(void)unused;
	for (int i = 0; i < 2; i++) {
		expect(common, 1, 0, 4096);
		turn_pass(0);
		turn_wait(0);
	}
	expect(common, 5, 0, 4096);
}

/* The mapping becomes writable after the child was made. */
static void children_see_what_becomes_writable(void)
{
	int fd = data_file(3 * MIB);

	common = map(fd, 3 * MIB, PROT_READ, MAP_SHARED, 0);
	expect(common, 1, 0, 4096);
	OK(pipe(turns[0]));
	OK(pipe(turns[1]));
	spawn(see_store_of_parent, 0);
	OK(close(turns[1][1]));
	turn_wait(1);
	OK(mprotect(common, 3 * MIB, PROT_READ | PROT_WRITE));
	turn_pass(1);
	turn_wait(1);
	pattern_fill(common, 4096, 5, 0);
	turn_pass(1);
	join_all(1);
}

/* The parent's two mappings stay alike after a fork. */
static void mappings_agree_after_a_fork(void)
{
	int fd = data_file(3 * MIB), reader = OK(open("file", O_RDONLY));
	unsigned char *at = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	unsigned char *read = map(reader, 3 * MIB, PROT_READ, MAP_SHARED, 0);

	expect(read, 1, 0, 4096);
	spawn(do_nothing, 0);
	join_all(1);
	pattern_fill(at, 4096, 2, 0);
	expect(read, 2, 0, 4096);
}

static void store_in_turns(int unused)
{
	(void)unused;
	int fd = OK(open("file", O_RDWR));

	OK(close(turns[0][1])); /* then the parent's close ends the wait */
	for (int seed = 2;; seed++) {
		char byte;

		if (read(turns[0][0], &byte, 1) != 1)
			return;
		unsigned char *at = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
		pattern_fill(at, 4096, seed, 0);
		turn_pass(0);
		turn_wait(0);
		OK(munmap(at, 3 * MIB));
		turn_pass(0);
	}
}

/* Another process, which stores into the file in turns, is there before the mappings. */
static void storer_begin(void)
{
	OK(pipe(turns[0]));
	OK(pipe(turns[1]));
	spawn(store_in_turns, 0);
	OK(close(turns[0][0]));
	OK(close(turns[1][1]));
}

/* Loads at all times, as calls of the storer drop pages that were there before. */
static void storer_stores(const volatile unsigned char *at)
{
	struct pollfd answer = {.fd = turns[1][0], .events = POLLIN};

	turn_pass(1);
	while (poll(&answer, 1, 0) == 0)
		(void)*at;
	turn_wait(1);
}

static void storer_end(void)
{
	OK(close(turns[0][1]));
	join_all(1);
}

/* Calls that must not end what tells this process of stores. */
static void stores_of_others_show(void)
{
	OK(close(data_file(3 * MIB)));
	storer_begin();
	int fd = OK(open("file", O_RDONLY));
	unsigned char *at = map(fd, 3 * MIB, PROT_READ, MAP_SHARED, 0);
	unsigned char *small = map(fd, 4096, PROT_READ, MAP_SHARED, 0);

	map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
	map(fd, 4096, PROT_READ, MAP_PRIVATE, 0);
	FAILS(EBADF,
	      mmap(at, 3 * MIB, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
	expect(at, 1, 0, 4096);
	expect(small, 1, 0, 4096);
	storer_stores(at);
	expect(at, 2, 0, 4096);
	expect(small, 2, 0, 4096);
	storer_stores(at);
	storer_end();
}

static atomic_bool ended;

/* Leases, and ends leases, of another file. */
static void *map_again_and_again(void *unused)
{
	(void)unused;
	int fd = OK(open("other", O_RDWR));

	while (!atomic_load(&ended)) {
		unsigned char *read = map(fd, 3 * MIB, PROT_READ, MAP_SHARED, 0);

		expect(read, 1, 0, 4096);
		unsigned char *at = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
		OK(munmap(at, 3 * MIB));
		OK(munmap(read, 3 * MIB));
	}
	return NULL;
}

/* No store is missed while other threads wait for the daemon, which may wait for this process. */
static void stores_of_others_show_beside_leases(void)
{
	pthread_t threads[2];
	int other = new_file("other");

	pattern_write(other, 1, 0, 3 * MIB);
	OK(close(data_file(3 * MIB)));
	storer_begin();
	int fd = OK(open("file", O_RDONLY));

	for (int i = 0; i < 2; i++)
		EQUAL(pthread_create(&threads[i], NULL, map_again_and_again, NULL), 0);
	for (int seed = 2; seed < 42; seed++) {
		unsigned char *at = map(fd, 3 * MIB, PROT_READ, MAP_SHARED, 0);

		expect(at, seed - 1, 0, 4096);
		storer_stores(at);
		expect(at, seed, 0, 4096);
		storer_stores(at);
		OK(munmap(at, 3 * MIB));
	}
	atomic_store(&ended, true);
	for (int i = 0; i < 2; i++)
		EQUAL(pthread_join(threads[i], NULL), 0);
	storer_end();
}

static void *map_beyond_the_end(void *unused)
{
	(void)unused;
	int fd = OK(open("file", O_RDWR));

	while (!atomic_load(&ended))
		OK(munmap(map(fd, 4 * MIB, PROT_READ, MAP_SHARED, 0), 4 * MIB));
	return NULL;
}

/* A thread's new mapping stays its own, while another thread turns mappings into the kernel's. */
static void a_new_mapping_stays_in_its_place(void)
{
	int fd = data_file(3 * MIB + 5);
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		EQUAL(pthread_create(&threads[i], NULL, map_beyond_the_end, NULL), 0);
	for (int i = 0; i < 300; i++) {
		unsigned char *at = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, 0);

		CHECK(mmap(at, 3 * MIB, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		EQUAL(at[MIB], 0);
		OK(munmap(at, 3 * MIB));
	}
	atomic_store(&ended, true);
	for (int i = 0; i < 2; i++)
		EQUAL(pthread_join(threads[i], NULL), 0);
}

static void outlive_parent(int go)
{
	char byte;

	/* On a GPU the child has a mapping of the kernel instead of a lease. */
	EQUAL(leased("file"), !on_gpu());
	EQUAL(read(go, &byte, 1), 1);
	expect(common, 1, 0, 3 * MIB);
	OK(munmap(common, 3 * MIB));
}

/* The parent unmaps before the child. */
static void children_keep_it(void)
{
	int fd = data_file(3 * MIB), pipes[2];

	common = map(fd, 3 * MIB, PROT_READ, MAP_SHARED, 0);
	OK(pipe(pipes));
	spawn(outlive_parent, pipes[0]);
	OK(munmap(common, 3 * MIB));
	CHECK(!leased("file"));
	OK(close(fd));
	EQUAL(write(pipes[1], "x", 1), 1);
	join_all(1);
}

/* Closing all descriptors does not end a lease that a mapping uses. */
static void mappings_outlive_descriptors(void)
{
	unsigned char *at = map(data_file(3 * MIB), 3 * MIB, PROT_READ, MAP_SHARED, 0);

	closefrom(3);
	CHECK(leased("file"));
	int fd = OK(open("file", O_RDWR));
	pattern_write(fd, 2, 0, 3 * MIB);
	expect(at, 2, 0, 3 * MIB);
}

static void growth_shows_zeroes_where_a_map_stored(void)
{
	for (int growth = 0; growth < GROWTHS; growth++) {
		int fd = growth_file();
		unsigned char *at = map(fd, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 0);

		CHECK(leased("file"));
		memset(at + GROWTH_OLD, 'b', 4096 - GROWTH_OLD);
		OK(munmap(at, 4096));
		CHECK(!leased("file"));
		growth_check(fd, growth);
		OK(close(fd));
		OK(unlink("file"));
	}
}

int main(int argc, char **argv)
{
	static const struct prog_test tests[] = {
	    TEST(stores_need_no_msync),
	    TEST(stores_move_mtime),
	    TEST(parts_of_files_of_several_chunks),
	    TEST(unmapping_in_parts),
	    TEST(growing_a_part),
	    TEST(protections_hold),
	    TEST(private_stays_private),
	    TEST(small_private_ones_are_the_kernel_s),
	    TEST(small_private_ones_show_earlier_stores),
	    TEST(small_private_ones_beside_shared_ones),
	    TEST(growing_by_mremap),
	    TEST(at_an_address),
	    TEST(beyond_the_end_is_the_kernel_s),
	    TEST(stores_show_in_all_mappings),
	    TEST(a_small_part_becomes_writable),
	    TEST(stores_show_beside_the_kernel_s),
	    TEST(truncating_what_is_mapped),
	    TEST(children_share_it),
	    TEST(stores_are_shared_with_children),
	    TEST(children_see_what_becomes_writable),
	    TEST(mappings_agree_after_a_fork),
	    TEST(stores_of_others_show),
	    TEST(stores_of_others_show_beside_leases),
	    TEST(a_new_mapping_stays_in_its_place),
	    TEST(children_keep_it),
	    TEST(mappings_outlive_descriptors),
	    TEST(growth_shows_zeroes_where_a_map_stored),
	};
	static const char *const kinds[] = {"mapped", NULL};

	return preload_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), NEVER, kinds);
}
