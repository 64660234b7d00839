/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: vulkan asan-host asan-standin tsan */
/* Many processes at once: in a single directory, in eight, and in a single file. */
#include "tests/mount/prog.h"

#include <dirent.h>
#include <pthread.h>

#define WORKERS 8
#define PART	(3 * MIB + 4093) /* range of a worker in the file, not aligned to pages */

static int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	CHECK(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

static void create_and_unlink(const char *folder, int worker)
{
	for (int i = 0; i < 200; i++) {
		char name[64], newer[64];

		sprintf(name, "%s/w%d-%d", folder, worker, i);
		sprintf(newer, "%s/r%d-%d", folder, worker, i);
		put(name, name);
		OK(rename(name, newer));
		expect_text(newer, name);
		if (i % 4)
			OK(unlink(newer));
	}
}

static void in_one(int worker)
{
	create_and_unlink(".", worker);
}

static void in_its_own(int worker)
{
	char folder[8];

	sprintf(folder, "d%d", worker);
	OK(mkdir(folder, 0755));
	create_and_unlink(folder, worker);
	EQUAL(count_entries(folder), 50);
}

static void creating_in_one_directory(void)
{
	for (int i = 0; i < WORKERS; i++)
		spawn(in_one, i);
	join_all(WORKERS);
	EQUAL(count_entries("."), WORKERS * 50);
}

static void creating_in_eight_directories(void)
{
	for (int i = 0; i < WORKERS; i++)
		spawn(in_its_own, i);
	join_all(WORKERS);
	EQUAL(count_entries("."), WORKERS);
}

/* All workers use the same few names: any call may lose the race and fail with an expected errno.
 */
static void fight(int worker)
{
	uint64_t random = seed_from_environment(5) + worker;

	for (int i = 0; i < 500; i++) {
		char a[4] = "n0", b[4] = "n0";

		a[1] += random_next(&random) % 4;
		b[1] += random_next(&random) % 4;
		switch (random_next(&random) % 5) {
		case 0:
			CHECK(mkdir(a, 0755) == 0 || errno == EEXIST);
			break;
		case 1:
			CHECK(rmdir(a) == 0 || errno == ENOENT || errno == ENOTDIR);
			break;
		case 2:
			CHECK(close(open(a, O_CREAT | O_WRONLY, 0644)) == 0 || errno == EBADF);
			break;
		case 3:
			CHECK(unlink(a) == 0 || errno == ENOENT || errno == EISDIR);
			break;
		default:
			CHECK(rename(a, b) == 0 || errno == ENOENT || errno == EISDIR ||
			      errno == ENOTDIR);
		}
	}
}

static void fighting_for_names(void)
{
	for (int i = 0; i < WORKERS; i++)
		spawn(fight, i);
	join_all(WORKERS);
	for (char name[3] = "n0"; name[1] < '4'; name[1]++)
		CHECK(!exists(name) || remove(name) == 0);
	EQUAL(count_entries("."), 0);
}

static void write_part(int worker)
{
	int fd = OK(open("file", O_RDWR));

	for (off_t done = 0; done < PART;) { /* pieces of odd and growing sizes */
		size_t piece = 1 + done / 3;

		if (piece > (size_t)(PART - done))
			piece = PART - done;
		pattern_write(fd, worker, worker * PART + done, piece);
		done += piece;
	}
	pattern_check(fd, worker, worker * PART, PART);
}

/* Reads while a writer may be writing: every byte is the writer's or still zero. */
static void read_part(int worker)
{
	int fd = OK(open("file", O_RDONLY));
	unsigned char *bytes = malloc(PART);

	for (int round = 0; round < 3; round++) {
		ssize_t got = OK(pread(fd, bytes, PART, worker * PART));

		for (ssize_t i = 0; i < got; i++)
			if (bytes[i] && bytes[i] != pattern_at(worker, worker * PART + i))
				FAIL("byte %zd of part %d is %02x", i, worker, bytes[i]);
	}
}

static void writers_and_readers_of_one_file(void)
{
	int fd = new_file("file");

	for (int i = 0; i < WORKERS; i++) {
		spawn(write_part, i);
		spawn(read_part, i);
	}
	join_all(2 * WORKERS);
	EQUAL(size_of(fd), WORKERS * PART);
	for (int i = 0; i < WORKERS; i++)
		pattern_check(fd, i, i * PART, PART);
}

static void *write_stripes(void *argument)
{
	int *fd_and_stripe = argument;
	char bytes[777];

	for (int i = fd_and_stripe[1]; i < 4000; i += WORKERS) {
		memset(bytes, 'a' + i % 26, sizeof(bytes));
		write_all(fd_and_stripe[0], bytes, sizeof(bytes), (off_t)i * sizeof(bytes));
	}
	return NULL;
}

/* Neighbouring writers share pages: a writer must not overwrite the bytes of its neighbour. */
static void interleaved_stripes_by_threads(void)
{
	int fd = new_file("file"), jobs[WORKERS][2];
	pthread_t threads[WORKERS];
	char bytes[777], wanted[777];

	for (int i = 0; i < WORKERS; i++) {
		jobs[i][0] = fd;
		jobs[i][1] = i;
		CHECK(!pthread_create(&threads[i], NULL, write_stripes, jobs[i]));
	}
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4000; i++) {
		read_all(fd, bytes, sizeof(bytes), (off_t)i * sizeof(bytes));
		memset(wanted, 'a' + i % 26, sizeof(wanted));
		CHECK(!memcmp(bytes, wanted, sizeof(bytes)));
	}
}

#define RECORD 100

static void append_records(int worker)
{
	int fd = OK(open("file", O_WRONLY | O_APPEND));
	char record[RECORD + 1];

	for (int i = 0; i < 200; i++) {
		memset(record, '.', RECORD);
		record[sprintf(record, "worker %d record %d", worker, i)] = '.';
		record[RECORD - 1] = '\n';
		EQUAL(write(fd, record, RECORD), RECORD);
	}
}

static void appending_from_many(void)
{
	static char seen[WORKERS][200];
	int fd = new_file("file");
	char record[RECORD + 1] = "";

	for (int i = 0; i < WORKERS; i++)
		spawn(append_records, i);
	join_all(WORKERS);
	EQUAL(size_of(fd), WORKERS * 200 * RECORD);
	for (int i = 0; i < WORKERS * 200; i++) {
		int worker, number;

		read_all(fd, record, RECORD, (off_t)i * RECORD);
		EQUAL(sscanf(record, "worker %d record %d.", &worker, &number), 2);
		EQUAL(record[RECORD - 1], '\n');
		EQUAL(seen[worker][number]++, 0);
	}
}

static void grow_and_shrink(int worker)
{
	int fd = OK(open("file", O_RDWR));

	for (int i = 0; i < 150; i++)
		if (worker % 2)
			OK(ftruncate(fd, (i * 7919L * worker) % (6 * MIB)));
		else
			write_all(fd, "never mind", 10, (i * 104729L * (worker + 1)) % (6 * MIB));
}

static void truncating_under_writers(void)
{
	int fd = new_file("file");

	for (int i = 0; i < WORKERS; i++)
		spawn(grow_and_shrink, i);
	join_all(WORKERS);
	OK(ftruncate(fd, 0));
	OK(ftruncate(fd, 6 * MIB));
	zero_check(fd, 0, 6 * MIB);
}

static void link_and_unlink(int worker)
{
	char name[16];

	for (int i = 0; i < 300; i++) {
		sprintf(name, "link%d", worker);
		OK(link("file", name));
		expect_text(name, "text");
		OK(unlink(name));
	}
}

static void linking_one_file(void)
{
	put("file", "text");
	for (int i = 0; i < WORKERS; i++)
		spawn(link_and_unlink, i);
	join_all(WORKERS);
	EQUAL(stat_of("file").st_nlink, 1);
	EQUAL(count_entries("."), 1);
}

PROG(TEST(creating_in_one_directory), TEST(creating_in_eight_directories), TEST(fighting_for_names),
     TEST(writers_and_readers_of_one_file), TEST(interleaved_stripes_by_threads),
     TEST(appending_from_many), TEST(truncating_under_writers), TEST(linking_one_file))
