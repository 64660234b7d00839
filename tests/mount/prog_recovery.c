/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: host standin vulkan */
/* mount: recovery=transparent,spill=host:256M
 * needs: daemon
 * timeout: 3600
 * Daemons are killed, and users of the files see no effect: no error, no wrong byte, no name that
 * is gone or there twice. Meanwhile the files leave the GPU and come back. */
#include "tests/mount/kills.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#define BLOCK  4096L
#define BLOCKS 512

/* The content of a block depends on the block's number and version. */
static void block_fill(uint64_t *block, uint64_t seed, uint64_t number, uint64_t version)
{
	for (size_t i = 0; i < BLOCK / sizeof(*block); i++)
		block[i] = mix(seed ^ number << 32 ^ version) + i;
}

static void block_expect(const uint64_t *block, uint64_t seed, uint64_t number, uint64_t version)
{
	uint64_t wanted[BLOCK / sizeof(uint64_t)];

	if (version)
		block_fill(wanted, seed, number, version);
	else
		memset(wanted, 0, sizeof(wanted));
	if (memcmp(block, wanted, BLOCK) != 0)
		FAIL("block %llu does not hold what was written (version %llu)",
		     (unsigned long long)number, (unsigned long long)version);
}

/* Writes some blocks and reads other blocks, a few at a time. */
static void read_and_write(int fd, int seed)
{
	static uint64_t versions[BLOCKS], blocks[8][BLOCK / sizeof(uint64_t)];
	uint64_t state = (uint64_t)seed;

	while (going_on()) {
		uint64_t many = 1 + random_next(&state) % 8;
		uint64_t first = random_next(&state) % (BLOCKS - many + 1);
		bool writes = random_next(&state) % 2;
		uint64_t began = now_ns();

		for (uint64_t i = 0; writes && i < many; i++)
			block_fill(blocks[i], (uint64_t)seed, first + i, ++versions[first + i]);
		if (writes)
			EQUAL(OK(pwrite(fd, blocks, (size_t)many * BLOCK, (off_t)first * BLOCK)),
			      (off_t)many * BLOCK);
		else
			EQUAL(OK(pread(fd, blocks, (size_t)many * BLOCK, (off_t)first * BLOCK)),
			      (off_t)many * BLOCK);
		board_note(began);
		for (uint64_t i = 0; !writes && i < many; i++)
			block_expect(blocks[i], (uint64_t)seed, first + i, versions[first + i]);
	}
	for (uint64_t i = 0; i < BLOCKS; i++) {
		read_all(fd, blocks, BLOCK, (off_t)i * BLOCK);
		block_expect(blocks[0], (uint64_t)seed, i, versions[i]);
	}
}

static void load_file(int seed)
{
	char name[32];

	sprintf(name, "file%d", seed);
	int fd = new_file(name);

	OK(ftruncate(fd, BLOCKS * BLOCK));
	read_and_write(fd, seed);
}

/* A file that is created without a name. */
static void load_nameless(int seed)
{
	int fd = OK(open(".", O_TMPFILE | O_RDWR, 0600));

	OK(ftruncate(fd, BLOCKS * BLOCK));
	read_and_write(fd, seed);
}

/* Large requests, so that a daemon is often killed during a copy. */
static void load_large(int seed)
{
	size_t size = 3 * MIB + 4093;
	uint64_t version = 0;
	int fd = new_file("large");

	while (going_on()) {
		uint64_t began = now_ns();

		version++;
		pattern_write(fd, version, 0, size);
		board_note(began);
		began = now_ns();
		pattern_check(fd, version, 0, size);
		board_note(began);
	}
	(void)seed;
}

static void map_and_write(int fd, int seed)
{
	static uint64_t versions[BLOCKS], block[BLOCK / sizeof(uint64_t)];
	uint64_t state = (uint64_t)seed;

	OK(ftruncate(fd, BLOCKS * BLOCK));
	char *memory = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(memory != MAP_FAILED);
	while (going_on()) {
		uint64_t at = random_next(&state) % BLOCKS;
		uint64_t began = now_ns();

		block_fill(block, (uint64_t)seed, at, ++versions[at]);
		memcpy(memory + at * BLOCK, block, BLOCK);
		if (at % 32 == 0)
			OK(msync(memory, BLOCKS * BLOCK, MS_SYNC));
		at = random_next(&state) % BLOCKS;
		block_expect((const uint64_t *)(memory + at * BLOCK), (uint64_t)seed, at,
			     versions[at]);
		board_note(began);
	}
	OK(munmap(memory, BLOCKS * BLOCK));
	OK(fsync(fd));
	for (uint64_t i = 0; i < BLOCKS; i++) {
		read_all(fd, block, BLOCK, (off_t)i * BLOCK);
		block_expect(block, (uint64_t)seed, i, versions[i]);
	}
}

static void load_mapping(int seed)
{
	map_and_write(new_file("mapped"), seed);
}

/* In host/ the kernel itself maps and reads the memory. */
static void load_host(int seed)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", getenv("HOSTDIR"), getenv("TEST"));
	map_and_write(new_file(path), seed);
	OK(unlink(path));
}

/* Some files stay. With too many files a start would take longer than the time between two kills.
 */
static bool stays(unsigned round)
{
	return round % 4 == 0 && round <= 1000;
}

static void expect_who_stayed(const char *folder, unsigned rounds)
{
	char name[64], text[32];

	for (unsigned round = 0; round < rounds; round++) {
		if (!stays(round))
			continue;
		sprintf(name, "%s/a%u", folder, round);
		sprintf(text, "round %u", round);
		expect_text(name, text);
	}
}

/* Calls that may be done only once. */
static void load_names(int seed)
{
	char folder[32], name[64], other_name[64], inner[64];
	char text[32];
	unsigned round;

	sprintf(folder, "names%d", seed);
	sprintf(inner, "%s/inner", folder);
	OK(mkdir(folder, 0755));
	for (round = 0; going_on(); round++) {
		uint64_t began = now_ns();

		sprintf(name, "%s/a%u", folder, round);
		sprintf(other_name, "%s/b%u", folder, round);
		sprintf(text, "round %u", round);
		int fd = new_file(name);

		write_all(fd, text, strlen(text), 0);
		OK(close(fd));
		OK(link(name, other_name));
		EQUAL(stat_of(name).st_nlink, 2);
		OK(unlink(name));
		OK(symlink("to", name));
		OK(rename(other_name, name));
		expect_text(name, text);
		EQUAL(stat_of(name).st_nlink, 1);
		OK(renameat2(AT_FDCWD, name, AT_FDCWD, other_name, RENAME_WHITEOUT));
		expect_text(other_name, text);
		EQUAL(stat_of(name).st_mode, S_IFCHR);
		OK(rename(other_name, name));
		OK(mkdir(inner, 0700));
		FAILS(EEXIST, mkdir(inner, 0700));
		FAILS(ENOTEMPTY, rmdir(folder));
		OK(rmdir(inner));
		FAILS(ENOENT, unlink(other_name));
		if (!stays(round))
			OK(unlink(name));
		board_note(began);
	}
	expect_who_stayed(folder, round);
}

/* Each entry of a listing in small steps gets another name: no entry is met twice, even if another
 * daemon answers each step. */
static void rename_listed(const char *folder, int names)
{
	static int rounds;
	char bytes[512], from[NAME_MAX + 32], to[NAME_MAX + 32];
	int fd = OK(open(folder, O_RDONLY | O_DIRECTORY)), renamed = 0;
	long used;

	rounds++;
	while ((used = OK(syscall(SYS_getdents64, fd, bytes, sizeof(bytes))))) {
		for (long at = 0; at < used;) {
			const struct dirent64 *entry = (const void *)(bytes + at);

			at += entry->d_reclen;
			if (entry->d_name[0] == '.')
				continue;
			snprintf(from, sizeof(from), "%s/%s", folder, entry->d_name);
			snprintf(to, sizeof(to), "%s/stays%d-%d", folder, renamed++, rounds);
			OK(rename(from, to));
		}
	}
	EQUAL(renamed, names);
	OK(close(fd));
}

/* Reads a directory: half of the entries stay, the other half appears and disappears. */
static void load_listing(int seed)
{
	char folder[32], name[64];

	sprintf(folder, "list%d", seed);
	OK(mkdir(folder, 0755));
	for (int i = 0; i < 100; i++) {
		sprintf(name, "%s/stays%d", folder, i);
		put(name, "x");
	}
	while (going_on()) {
		DIR *dir = opendir(folder);
		int n = 0;

		CHECK(dir);
		for (struct dirent *entry; (entry = readdir(dir));)
			n += strncmp(entry->d_name, "stays", 5) == 0;
		closedir(dir);
		EQUAL(n, 100);
		sprintf(name, "%s/goes", folder);
		put(name, "y");
		OK(unlink(name));
		rename_listed(folder, n);
	}
}

/* Attributes, sizes and times. */
static void load_attributes(int seed)
{
	char value[32], got[64];
	int fd = new_file("attributes");

	for (unsigned round = 1; going_on(); round++) {
		struct timespec times[2] = {{.tv_sec = round}, {.tv_sec = round + 1}};

		sprintf(value, "value %u", round);
		OK(fsetxattr(fd, "user.round", value, strlen(value) + 1, 0));
		OK(ftruncate(fd, round % 100 * 1000));
		OK(futimens(fd, times));
		OK(fchmod(fd, 0600 + round % 64));
		EQUAL(OK(fgetxattr(fd, "user.round", got, sizeof(got))), strlen(value) + 1);
		CHECK(strcmp(got, value) == 0);

		struct stat st;

		OK(fstat(fd, &st));
		EQUAL(st.st_size, round % 100 * 1000);
		EQUAL(st.st_mtim.tv_sec, round + 1);
		EQUAL(st.st_mode & 07777, 0600 + round % 64);
	}
	(void)seed;
}

/* Files of the other loads leave the GPU and come back, unless they are removed just then. */
static void load_moving(int seed)
{
	static const char *const places[] = {"host", "gpu"};
	uint64_t state = (uint64_t)seed;

	while (going_on()) {
		DIR *dir = opendir(".");
		struct dirent *entry;

		CHECK(dir);
		while (going_on() && (entry = readdir(dir))) {
			const char *place = places[random_next(&state) % 2];

			if (entry->d_type != DT_REG ||
			    setxattr(entry->d_name, "user.gpumem.resident", place, strlen(place),
				     0) == 0)
				continue;
			CHECK(errno == ENOENT || errno == EBUSY);
		}
		closedir(dir);
		sleep_ms(1);
	}
}

static void nobody_notices(void)
{
	static void (*const loads[])(int) = {
	    load_file,	load_file,  load_nameless, load_large,	    load_mapping, load_host,
	    load_names, load_names, load_listing,  load_attributes, load_moving};

	under_kills(40, loads, sizeof(loads) / sizeof(loads[0]));
}

PROG(TEST(nobody_notices))
