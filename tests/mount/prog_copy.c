/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: vulkan asan-host asan-standin tsan */
/* copy_file_range, sendfile and splice: inside a GPU, between GPUs, and between a GPU and other
 * filesystems. */
#include "tests/mount/prog.h"

#include <sys/sendfile.h>

static long copy(int from, off_t from_at, int to, off_t to_at, size_t bytes)
{
	size_t done = 0;

	while (done < bytes) {
		long long n = OK(copy_file_range(from, &from_at, to, &to_at, bytes - done, 0));

		if (n == 0)
			break;
		done += n;
	}
	return done;
}

static void whole_file(void)
{
	int from = new_file("from"), to = new_file("to");

	pattern_write(from, 1, 0, 9 * MIB + 17);
	EQUAL(copy(from, 0, to, 0, 9 * MIB + 17), 9 * MIB + 17);
	EQUAL(size_of(to), 9 * MIB + 17);
	pattern_check(to, 1, 0, 9 * MIB + 17);
	pattern_write(from, 2, 0, 1 * MIB); /* the copy does not follow the source */
	pattern_check(to, 1, 0, 1 * MIB);
}

/* Source and target grew in steps of different sizes. */
static void pieces_of_many_sizes(void)
{
	const long bytes = 34 * MIB + 12345;
	int from = new_file("from"), to = new_file("to");

	for (long at = 0; at < bytes; at += MIB)
		pattern_write(from, 1, at, bytes - at < MIB ? bytes - at : MIB);
	OK(fallocate(to, 0, 12 * MIB, 20 * MIB));
	OK(fallocate(to, 0, 5 * MIB, 3 * MIB));
	EQUAL(copy(from, 0, to, 0, bytes), bytes);
	pattern_check(to, 1, 0, bytes);
	EQUAL(copy(from, 3 * MIB + 5, to, 7, 30 * MIB), 30 * MIB);
	pattern_check(to, 1, 0, 7);
	pattern_check_from(to, 1, 3 * MIB + 5, 7, 30 * MIB);
	pattern_check(to, 1, 30 * MIB + 7, bytes - 30 * MIB - 7);
	OK(ftruncate(from, 0)); /* free memory for other tests of the same mount */
	OK(ftruncate(to, 0));
}

static void odd_ranges(void)
{
	static const size_t sizes[] = {1, 15, 4096, 4097, 65535, 65537, 2 * MIB + 1};
	static const off_t offsets[] = {0, 1, 63, 4095, 65536, 2 * MIB - 1};
	int from = new_file("from"), to = new_file("to");

	pattern_write(from, 1, 0, 5 * MIB);
	pattern_write(to, 2, 0, 6 * MIB);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++) {
			off_t at = offsets[o], to_at = offsets[(o * 5 + s) % 6] + 3;

			EQUAL(copy(from, at, to, to_at, sizes[s]), (long)sizes[s]);
			pattern_check_from(to, 1, at, to_at, sizes[s]);
			pattern_check(to, 2, to_at - 3, 3);
			pattern_check(to, 2, to_at + sizes[s], 100);
			pattern_write(to, 2, to_at, sizes[s]);
		}
	EQUAL(size_of(to), 6 * MIB);
}

static void inside_one_file(void)
{
	int fd = new_file("file");

	pattern_write(fd, 1, 0, 3 * MIB);
	EQUAL(copy(fd, 0, fd, 3 * MIB, 3 * MIB), 3 * MIB);
	EQUAL(copy(fd, 100, fd, 2 * MIB, 1000), 1000);
	pattern_check(fd, 1, 0, 2 * MIB);
	pattern_check_from(fd, 1, 100, 2 * MIB, 1000);
	pattern_check_from(fd, 1, 0, 3 * MIB, 3 * MIB);
}

static void up_to_the_end_and_beyond(void)
{
	int from = new_file("from"), to = new_file("to");

	pattern_write(from, 1, 0, 1000);
	EQUAL(copy(from, 900, to, 50, 5000), 100);
	EQUAL(size_of(to), 150);
	zero_check(to, 0, 50);
	EQUAL(copy(from, 1000, to, 0, 10), 0);
	EQUAL(copy(from, 5 * MIB, to, 0, 10), 0);
	EQUAL(size_of(to), 150);
}

static void holes_arrive_as_zeros(void)
{
	int from = new_file("from"), to = new_file("to");

	OK(ftruncate(from, 8 * MIB));
	pattern_write(from, 1, 5 * MIB, 100);
	pattern_write(to, 2, 0, 8 * MIB);
	EQUAL(copy(from, 0, to, 0, 8 * MIB), 8 * MIB);
	zero_check(to, 0, 5 * MIB);
	pattern_check(to, 1, 5 * MIB, 100);
	zero_check(to, 5 * MIB + 100, 3 * MIB - 100);
}

static void across_gpus(void)
{
	int from = new_file("from"), to = new_file(other("to"));

	pattern_write(from, 1, 0, 9 * MIB + 17);
	EQUAL(copy(from, 0, to, 11, 9 * MIB + 17), 9 * MIB + 17);
	pattern_check_from(to, 1, 0, 11, 9 * MIB + 17);
	EQUAL(copy(to, 11 + 4 * MIB, from, 0, 1 * MIB), 1 * MIB);
	pattern_check_from(from, 1, 4 * MIB, 0, 1 * MIB);
	pattern_check(from, 1, 1 * MIB, 1 * MIB);
}

static void both_directions_at_once_child(int direction)
{
	int a = OK(open("a", O_RDWR)), b = OK(open("b", O_RDWR));

	for (int i = 0; i < 50; i++)
		EQUAL(direction ? copy(a, 0, b, 1 * MIB, 1 * MIB) : copy(b, 0, a, 1 * MIB, 1 * MIB),
		      1 * MIB);
}

/* Two copies that lock two files in opposite order must not deadlock. */
static void both_directions_at_once(void)
{
	int a = new_file("a"), b = new_file("b");

	pattern_write(a, 1, 0, 1 * MIB);
	pattern_write(b, 2, 0, 1 * MIB);
	spawn(both_directions_at_once_child, 0);
	spawn(both_directions_at_once_child, 1);
	join_all(2);
	pattern_check_from(a, 2, 0, 1 * MIB, 1 * MIB);
	pattern_check_from(b, 1, 0, 1 * MIB, 1 * MIB);
}

static void sendfile_and_splice(void)
{
	int from = new_file("from"), to = new_file("to"), pipes[2];
	off_t at = 0, out = 0;

	pattern_write(from, 1, 0, 1 * MIB);
	while (at < 1 * MIB)
		OK(sendfile(to, from, &at, 1 * MIB - at));
	pattern_check(to, 1, 0, 1 * MIB);
	OK(ftruncate(to, 0));
	OK(pipe(pipes));
	for (at = 0; at < 1 * MIB;) {
		long long n = OK(splice(from, &at, pipes[1], NULL, 64 * KIB, 0));

		EQUAL(splice(pipes[0], NULL, to, &out, n, 0), n);
	}
	pattern_check(to, 1, 0, 1 * MIB);
}

static void to_another_file_system(void)
{
	char path[PATH_MAX];
	int from = new_file("from"), to;
	off_t at = 0;

	sprintf(path, "%s/outside", getenv("WORK"));
	to = OK(open(path, O_RDWR | O_CREAT | O_TRUNC, 0644));
	pattern_write(from, 1, 0, 2 * MIB + 5);
	while (at < 2 * MIB + 5)
		OK(sendfile(to, from, &at, 1 * MIB));
	pattern_check(to, 1, 0, 2 * MIB + 5);
	at = 0;
	OK(ftruncate(from, 0));
	while (at < 2 * MIB + 5)
		OK(sendfile(from, to, &at, 1 * MIB));
	pattern_check(from, 1, 0, 2 * MIB + 5);
}

PROG(TEST(whole_file), TEST(pieces_of_many_sizes), TEST(odd_ranges), TEST(inside_one_file),
     TEST(up_to_the_end_and_beyond), TEST(holes_arrive_as_zeros), TEST(across_gpus),
     TEST(both_directions_at_once), TEST(sendfile_and_splice), TEST(to_another_file_system))
