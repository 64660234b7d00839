/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files: open flags, growing and shrinking, unlinking an open file, O_TMPFILE. */
#include "tests/mount/prog.h"

#include <sys/uio.h>

static void never_written_reads_zero(void)
{
	int fd = new_file("file");

	OK(ftruncate(fd, 5 * MIB + 3));
	zero_check(fd, 0, 5 * MIB + 3);
	pattern_write(fd, 1, 3 * MIB + 7, 100);
	zero_check(fd, 0, 3 * MIB + 7);
	pattern_check(fd, 1, 3 * MIB + 7, 100);
	zero_check(fd, 3 * MIB + 107, 2 * MIB - 104);
	OK(fallocate(fd, 0, 0, 9 * MIB));
	zero_check(fd, 0, 3 * MIB + 7);
	zero_check(fd, 3 * MIB + 107, 6 * MIB - 107);
}

static void recycled_memory_is_zero(void)
{
	int fd = new_file("secret");
	char *secret = malloc(8 * MIB);

	memset(secret, 0xa5, 8 * MIB);
	write_all(fd, secret, 8 * MIB, 0);
	OK(close(fd));
	OK(unlink("secret"));
	for (int i = 0; i < 20; i++) {
		char name[16];

		sprintf(name, "new%d", i);
		fd = new_file(name);
		write_all(fd, "x", 1, i * 37000);
		zero_check(fd, 0, i * 37000);
		OK(ftruncate(fd, i * 37000 + 70000));
		zero_check(fd, i * 37000 + 1, 69999);
		OK(close(fd));
	}
}

static void no_stale_bytes_after_shrink(void)
{
	static const off_t cuts[] = {0,	    1,	   511,		4095,	 4096,	     4097,
				     65535, 65537, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1};

	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		int fd = OK(open("file", O_RDWR | O_CREAT | O_TRUNC, 0644));

		pattern_write(fd, i, 0, 4 * MIB);
		OK(ftruncate(fd, cuts[i]));
		EQUAL(size_of(fd), cuts[i]);
		OK(ftruncate(fd, 4 * MIB));
		pattern_check(fd, i, 0, cuts[i]);
		zero_check(fd, cuts[i], 4 * MIB - cuts[i]);
		OK(ftruncate(fd, cuts[i]));
		write_all(fd, "end", 3, 3 * MIB);
		zero_check(fd, cuts[i], 3 * MIB - cuts[i]);
		OK(close(fd));
	}
}

static void reads_end_at_the_end(void)
{
	char bytes[100];
	int fd = new_file("file");

	EQUAL(pread(fd, bytes, 100, 0), 0);
	pattern_write(fd, 1, 0, 50);
	EQUAL(pread(fd, bytes, 100, 0), 50);
	EQUAL(pread(fd, bytes, 100, 49), 1);
	EQUAL(pread(fd, bytes, 100, 50), 0);
	EQUAL(pread(fd, bytes, 100, 1 * MIB), 0);
	EQUAL(pread(fd, bytes, 0, 0), 0);
	EQUAL(pwrite(fd, bytes, 0, 1 * MIB), 0);
	EQUAL(size_of(fd), 50);
}

static void every_size_near_a_border(void)
{
	static const off_t borders[] = {4096, 65536, 1 * MIB, 2 * MIB, 4 * MIB};

	for (size_t i = 0; i < sizeof(borders) / sizeof(borders[0]); i++)
		for (int delta = -2; delta <= 2; delta++) {
			int fd = OK(open("file", O_RDWR | O_CREAT | O_TRUNC, 0644));

			pattern_write(fd, i, 0, borders[i] + delta);
			EQUAL(size_of(fd), borders[i] + delta);
			pattern_check(fd, i, 0, borders[i] + delta);
			pattern_write(fd, 9, borders[i] - 5, 10);
			pattern_check(fd, i, 0, borders[i] - 5);
			pattern_check(fd, 9, borders[i] - 5, 10);
			OK(close(fd));
		}
}

static void growing_byte_by_byte(void)
{
	int fd = new_file("file");
	off_t end = 0;

	for (int step = 1; end < 3 * MIB; step = step * 3 % 70001) {
		pattern_write(fd, 4, end, step);
		end += step;
	}
	EQUAL(size_of(fd), end);
	pattern_check(fd, 4, 0, end);
}

static void writing_backwards(void)
{
	int fd = new_file("file");

	for (off_t at = 3 * MIB; at > 0; at -= 12345)
		pattern_write(fd, 5, at, 12345);
	EQUAL(size_of(fd), 3 * MIB + 12345);
	pattern_check(fd, 5, 3 * MIB % 12345, 3 * MIB);
}

static void vectors_and_odd_addresses(void)
{
	char *bytes = malloc(300 * KIB), *back = malloc(300 * KIB);
	int fd = new_file("file");
	struct iovec out[3] = {{bytes + 1, 7}, {bytes + 4099, 100000}, {bytes + 200001, 4096}};
	struct iovec in[2] = {{back + 3, 50001}, {back + 60007, 54102}};

	pattern_fill(bytes, 300 * KIB, 6, 0);
	EQUAL(pwritev(fd, out, 3, 11), 104103);
	EQUAL(preadv(fd, in, 2, 11), 104103);
	CHECK(!memcmp(back + 3, bytes + 1, 7));
	CHECK(!memcmp(back + 10, bytes + 4099, 49994));
	CHECK(!memcmp(back + 60007, bytes + 4099 + 49994, 50006));
	CHECK(!memcmp(back + 60007 + 50006, bytes + 200001, 4096));
	zero_check(fd, 0, 11);
}

static void truncate_on_open(void)
{
	put("file", "some longer text");
	int old = OK(open("file", O_RDWR)), fd = OK(open("file", O_RDWR | O_TRUNC));

	EQUAL(size_of(fd), 0);
	EQUAL(size_of(old), 0);
	write_all(old, "new", 3, 4);
	char got[7];
	read_all(fd, got, 7, 0);
	CHECK(!memcmp(got, "\0\0\0\0new", 7));
}

static void append_moves_to_the_end(void)
{
	int fd = new_file("file"), append = OK(open("file", O_WRONLY | O_APPEND));

	write_all(fd, "0123456789", 10, 0);
	EQUAL(write(append, "ab", 2), 2);
	EQUAL(lseek(append, 0, SEEK_CUR), 12);
	OK(lseek(append, 0, SEEK_SET));
	EQUAL(write(append, "cd", 2), 2);
	EQUAL(pwrite(append, "ef", 2, 0), 2); /* Linux appends despite the offset */
	expect_text("file", "0123456789abcdef");
	OK(fcntl(append, F_SETFL, 0));
	EQUAL(pwrite(append, "X", 1, 0), 1);
	expect_text("file", "X123456789abcdef");
}

static void exclusive_create_has_one_winner(void)
{
	for (int round = 0; round < 50; round++) {
		int pipes[2], winners = 0;
		char name[16], got[8];

		OK(pipe(pipes));
		sprintf(name, "lock%d", round);
		for (int i = 0; i < 4; i++)
			if (OK(fork()) == 0) {
				int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);

				if (fd >= 0)
					OK(write(pipes[1], "w", 1));
				else
					CHECK(errno == EEXIST);
				_exit(0);
			}
		join_all(4);
		OK(close(pipes[1]));
		while (read(pipes[0], got, 1) == 1)
			winners++;
		EQUAL(winners, 1);
		OK(close(pipes[0]));
	}
}

static void unlinked_while_open(void)
{
	int fd = new_file("file"), again = OK(open("file", O_RDONLY));
	struct stat st;

	pattern_write(fd, 7, 0, 3 * MIB);
	OK(unlink("file"));
	CHECK(!exists("file"));
	OK(fstat(fd, &st));
	EQUAL(st.st_nlink, 0);
	put("file", "another");
	pattern_check(again, 7, 0, 3 * MIB);
	pattern_write(fd, 8, 2 * MIB, 2 * MIB);
	OK(close(fd));
	pattern_check(again, 7, 0, 2 * MIB);
	pattern_check(again, 8, 2 * MIB, 2 * MIB);
	OK(fchmod(again, 0600));
	expect_text("file", "another");
}

static void removed_directory_while_open(void)
{
	OK(mkdir("dir", 0755));
	int dir = OK(open("dir", O_RDONLY | O_DIRECTORY));
	struct stat st;

	OK(rmdir("dir"));
	OK(fstat(dir, &st));
	FAILS(ENOENT, openat(dir, "file", O_CREAT | O_RDWR, 0644));
	FAILS(ENOENT, mkdirat(dir, "sub", 0755));
	OK(mkdir("dir", 0755));
	CHECK(stat_of("dir").st_ino != st.st_ino || st.st_nlink == 0);
}

static void nameless_file_gets_a_name(void)
{
	char path[64];
	int fd = OK(open(".", O_TMPFILE | O_RDWR, 0640));

	pattern_write(fd, 9, 0, 1 * MIB);
	sprintf(path, "/proc/self/fd/%d", fd);
	OK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
	OK(close(fd));
	EQUAL(stat_of("named").st_nlink, 1);
	EQUAL(stat_of("named").st_mode & 07777, 0640);
	fd = OK(open("named", O_RDONLY));
	pattern_check(fd, 9, 0, 1 * MIB);
}

static void nameless_file_stays_nameless(void)
{
	char path[64];
	int fd = OK(open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600));

	pattern_write(fd, 9, 0, 100);
	sprintf(path, "/proc/self/fd/%d", fd);
	FAILS(ENOENT, linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
	pattern_check(fd, 9, 0, 100);
}

static void sync_calls_work(void)
{
	int fd = new_file("empty"), dir = OK(open(".", O_RDONLY));

	OK(fsync(fd));
	OK(fdatasync(fd));
	OK(ftruncate(fd, 3 * MIB));
	OK(fsync(fd));
	OK(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
	pattern_write(fd, 1, 1 * MIB, 10);
	OK(fdatasync(fd));
	OK(fsync(dir));
	OK(syncfs(fd));
	fd = OK(open("synced", O_RDWR | O_CREAT | O_DSYNC, 0644));
	pattern_write(fd, 2, 0, 10000);
	pattern_check(fd, 2, 0, 10000);
}

static void direct_io_works(void)
{
	void *bytes;
	int fd = OK(open("file", O_RDWR | O_CREAT | O_DIRECT, 0644));

	CHECK(!posix_memalign(&bytes, 4096, 1 * MIB));
	pattern_fill(bytes, 1 * MIB, 3, 0);
	write_all(fd, bytes, 1 * MIB, 0);
	memset(bytes, 0, 1 * MIB);
	read_all(fd, bytes, 1 * MIB, 0);
	for (long i = 0; i < 1 * MIB; i++)
		EQUAL(((unsigned char *)bytes)[i], pattern_at(3, i));
}

static void blocks_follow_the_data(void)
{
	int fd = new_file("file");

	OK(ftruncate(fd, 64 * MIB));
	CHECK(stat_of("file").st_blocks * 512 < 16 * MIB);
	pattern_write(fd, 1, 0, 8 * MIB);
	OK(fsync(fd));
	CHECK(stat_of("file").st_blocks * 512 >= 8 * MIB);
	OK(ftruncate(fd, 0));
	EQUAL(stat_of("file").st_blocks, 0);
}

PROG(TEST(never_written_reads_zero), TEST(recycled_memory_is_zero),
     TEST(no_stale_bytes_after_shrink), TEST(reads_end_at_the_end), TEST(every_size_near_a_border),
     TEST(growing_byte_by_byte), TEST(writing_backwards), TEST(vectors_and_odd_addresses),
     TEST(truncate_on_open), TEST(append_moves_to_the_end), TEST(exclusive_create_has_one_winner),
     TEST(unlinked_while_open), TEST(removed_directory_while_open), TEST(nameless_file_gets_a_name),
     TEST(nameless_file_stays_nameless), TEST(sync_calls_work), TEST(direct_io_works),
     TEST(blocks_follow_the_data))
