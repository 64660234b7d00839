/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: vulkan asan-host asan-standin tsan */
/* mmap of device files and of host/ files: shared and private, compared with read, and seen by
 * other processes. */
#include "tests/mount/growth.h"

#include <sys/mman.h>

static unsigned char *map(int fd, size_t bytes, int protection, int flags)
{
	unsigned char *address = mmap(NULL, bytes, protection, flags, fd, 0);

	if (address == MAP_FAILED)
		FAIL("mmap: %s", strerror(errno));
	return address;
}

static void check_mapped(const unsigned char *bytes, size_t size, uint64_t seed)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != pattern_at(seed, i))
			FAIL("byte %zu is %02x, wanted %02x", i, bytes[i], pattern_at(seed, i));
}

static void shows_what_was_written(void)
{
	int fd = new_file("file");

	pattern_write(fd, 1, 0, 3 * MIB + 5);
	check_mapped(map(fd, 3 * MIB + 5, PROT_READ, MAP_SHARED), 3 * MIB + 5, 1);
	check_mapped(map(fd, 3 * MIB + 5, PROT_READ, MAP_PRIVATE), 3 * MIB + 5, 1);
}

static void msync_reaches_other_openers(void)
{
	int fd = new_file("file"), reader;

	OK(ftruncate(fd, 3 * MIB));
	unsigned char *bytes = map(fd, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
	pattern_fill(bytes, 3 * MIB, 2, 0);
	OK(msync(bytes, 3 * MIB, MS_SYNC));
	reader = OK(open("file", O_RDONLY));
	pattern_check(reader, 2, 0, 3 * MIB);
}

static void munmap_and_close_write_back(void)
{
	int fd = new_file("file");

	OK(ftruncate(fd, 2 * MIB));
	unsigned char *bytes = map(fd, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
	pattern_fill(bytes, 2 * MIB, 3, 0);
	OK(munmap(bytes, 2 * MIB));
	OK(fsync(fd));
	OK(close(fd));
	fd = OK(open("file", O_RDONLY));
	pattern_check(fd, 3, 0, 2 * MIB);
	EQUAL(size_of(fd), 2 * MIB);
}

static void map_in_a_child(int unused)
{
	int fd = OK(open("file", O_RDWR));
	unsigned char *bytes = map(fd, 1 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);

	(void)unused;
	pattern_fill(bytes, 1 * MIB, 4, 0);
	OK(msync(bytes, 1 * MIB, MS_SYNC));
	EQUAL(bytes[12345], pattern_at(4, 12345));
}

static void another_process_writes(void)
{
	int fd = new_file("file");

	OK(ftruncate(fd, 1 * MIB));
	spawn(map_in_a_child, 0);
	join_all(1);
	pattern_check(fd, 4, 0, 1 * MIB);
	check_mapped(map(fd, 1 * MIB, PROT_READ, MAP_SHARED), 1 * MIB, 4);
}

static void private_stays_private(void)
{
	int fd = new_file("file");

	pattern_write(fd, 5, 0, 1 * MIB);
	unsigned char *bytes = map(fd, 1 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	memset(bytes, 0xff, 1 * MIB);
	OK(munmap(bytes, 1 * MIB));
	pattern_check(fd, 5, 0, 1 * MIB);
}

static void rest_of_the_last_page_is_zero(void)
{
	int fd = new_file("file");

	pattern_write(fd, 6, 0, 100);
	unsigned char *bytes = map(fd, 4096, PROT_READ | PROT_WRITE, MAP_SHARED);
	check_mapped(bytes, 100, 6);
	for (int i = 100; i < 4096; i++)
		EQUAL(bytes[i], 0);
	memset(bytes + 100, 0xee, 3996); /* bytes beyond the end never reach the file */
	OK(msync(bytes, 4096, MS_SYNC));
	EQUAL(size_of(fd), 100);
	OK(munmap(bytes, 4096));
	need_daemon(); /* tmpfs keeps the bytes beyond the end */
	OK(ftruncate(fd, 4096));
	zero_check(fd, 100, 3996);
}

static void of_an_unlinked_file(void)
{
	int fd = new_file("file");

	pattern_write(fd, 7, 0, 1 * MIB);
	unsigned char *bytes = map(fd, 1 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
	OK(close(fd));
	OK(unlink("file"));
	check_mapped(bytes, 1 * MIB, 7);
	bytes[0] ^= 1;
	OK(msync(bytes, 1 * MIB, MS_SYNC));
}

static void programs_open_files_only_as_allowed(void)
{
	int fd = new_file("file"), reader = OK(open("file", O_RDONLY));

	pattern_write(fd, 1, 0, 4096);
	CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED);
	EQUAL(errno, EACCES);
}

static void enter_host(void)
{
	char folder[64];

	OK(chdir(getenv("HOSTDIR")));
	sprintf(folder, "mmap.%d", getpid());
	OK(mkdir(folder, 0755));
	OK(chdir(folder));
}

static void write_by_word(int unused)
{
	unsigned char *bytes =
	    map(OK(open("file", O_RDWR)), 1 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);

	(void)unused;
	pattern_fill(bytes, 1 * MIB, 8, 0);
}

/* host/ is system memory: two mappings share the memory, without msync. */
static void host_files_are_shared_memory(void)
{
	enter_host();
	int fd = new_file("file");
	OK(ftruncate(fd, 1 * MIB));
	unsigned char *bytes = map(fd, 1 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
	spawn(write_by_word, 0);
	join_all(1);
	check_mapped(bytes, 1 * MIB, 8);
	OK(msync(bytes, 1 * MIB, MS_SYNC));
	pattern_check(fd, 8, 0, 1 * MIB);
	pattern_write(fd, 9, 0, 1 * MIB);
	check_mapped(bytes, 1 * MIB, 9);
	OK(munmap(bytes, 1 * MIB));
	OK(close(fd));
	OK(unlink("file"));
}

static void host_files_grow_and_shrink_under_maps(void)
{
	enter_host();
	int fd = new_file("file");
	pattern_write(fd, 1, 0, 1 * MIB);
	unsigned char *bytes = map(fd, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
	OK(ftruncate(fd, 4 * MIB));
	bytes[3 * MIB] = 42;
	check_mapped(bytes, 1 * MIB, 1);
	OK(msync(bytes, 4 * MIB, MS_SYNC));
	char got;
	read_all(fd, &got, 1, 3 * MIB);
	EQUAL(got, 42);
	OK(ftruncate(fd, 1 * MIB));
	OK(ftruncate(fd, 4 * MIB));
	zero_check(fd, 1 * MIB, 3 * MIB);
}

static blkcnt_t blocks(void)
{
	struct stat st;

	OK(stat("file", &st));
	return st.st_blocks;
}

/* The kernel's close is no wait for the daemon's: some requests later the daemon has closed, too.
 */
static void let_the_daemon_close(void)
{
	struct statx stx;

	for (int i = 0; i < 50; i++)
		OK(statx(AT_FDCWD, "file", AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &stx));
}

/* tar -S stores no byte of a file without blocks. */
static void host_files_show_blocks_of_maps_without_handle(void)
{
	enter_host();
	int fd = new_file("file");

	OK(ftruncate(fd, 4 * MIB));
	int reader = OK(open("file", O_RDONLY));
	unsigned char *bytes = map(fd, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);

	OK(close(fd));
	let_the_daemon_close();
	EQUAL(blocks(), 0);
	bytes[3 * MIB] = 42;
	CHECK(blocks() > 0);
	OK(close(reader));
}

static void grow_what_is_mapped(int growth)
{
	int fd = growth_file();
	unsigned char *bytes = map(fd, 4096, PROT_READ | PROT_WRITE, MAP_SHARED);

	memset(bytes + GROWTH_OLD, 'b', 4096 - GROWTH_OLD);
	OK(msync(bytes, 4096, MS_SYNC));
	int grower = OK(open("file", O_RDWR));
	growth_check(grower, growth);
	EQUAL(bytes[GROWTH_OLD], 0);
	bytes[GROWTH_OLD] = 'a';
	OK(munmap(bytes, 4096));
	OK(close(grower));
	char got;
	read_all(fd, &got, 1, GROWTH_OLD);
	EQUAL(got, 'a');
	OK(close(fd));
}

/* Not on tmpfs. The preload library's mapping is a lease, whose holder may be about to set the
 * size.
 */
static void growth_shows_zeroes_where_a_map_stored(void)
{
	need_daemon();
	if (getenv("LD_PRELOAD"))
		SKIP("a lease lasts as long as the mapping");
	for (int growth = 0; growth < GROWTHS; growth++)
		grow_what_is_mapped(growth);
}

static void host_growth_shows_zeroes_where_a_map_stored(void)
{
	need_daemon();
	enter_host();
	for (int growth = 0; growth < GROWTHS; growth++)
		grow_what_is_mapped(growth);
}

PROG(TEST(shows_what_was_written), TEST(msync_reaches_other_openers),
     TEST(munmap_and_close_write_back), TEST(another_process_writes), TEST(private_stays_private),
     TEST(rest_of_the_last_page_is_zero), TEST(of_an_unlinked_file),
     TEST(programs_open_files_only_as_allowed), TEST(host_files_are_shared_memory),
     TEST(host_files_grow_and_shrink_under_maps),
     TEST(host_files_show_blocks_of_maps_without_handle),
     TEST(growth_shows_zeroes_where_a_map_stored),
     TEST(host_growth_shows_zeroes_where_a_map_stored))
