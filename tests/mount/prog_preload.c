/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin tsan */
/* backends: host standin vulkan cuda
 * Reading and writing under the preload library: positions, sizes, times and locks are as without
 * the library, also if other threads and processes use the descriptor. */
#include "tests/mount/preload.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* --- Random calls on the mount and on a plain file: results and bytes must be equal */

#define OPERATIONS 3000
#define HANDLES	   5
#define LARGEST	   (6 * MIB)
#define PIECE	   (300 * KIB)

enum { MOUNT, PLAIN, SIDES };
static const int handle_flags[HANDLES] = {O_RDWR, O_RDWR, O_RDONLY, O_WRONLY, O_RDWR | O_APPEND};
static const char *paths[SIDES];
static int handles[HANDLES][SIDES];
static uint64_t state;
static char bytes[SIDES][PIECE];
static long step;

static uint64_t below(uint64_t limit)
{
	return random_next(&state) % limit;
}

struct call {
	unsigned kind;
	off_t offset;
	size_t size, first;
	int fd;
	char *at;
};

static ssize_t make(const struct call *call)
{
	struct iovec parts[3] = {{call->at, call->first},
				 {call->at + call->first, 0},
				 {call->at + call->first, call->size - call->first}};

	switch (call->kind) {
	case 0:
		return read(call->fd, call->at, call->size);
	case 1:
		return write(call->fd, call->at, call->size);
	case 2:
		return pread(call->fd, call->at, call->size, call->offset);
	case 3:
		return pwrite(call->fd, call->at, call->size, call->offset);
	case 4:
		return readv(call->fd, parts, 3);
	case 5:
		return writev(call->fd, parts, 3);
	case 6:
		return preadv(call->fd, parts, 3, call->offset);
	case 7:
		return pwritev(call->fd, parts, 3, call->offset);
	case 8:
		return preadv2(call->fd, parts, 3, -1, 0);
	case 9:
		return pwritev2(call->fd, parts, 3, -1, 0);
	default:
		return lseek(call->fd, call->offset, SEEK_SET);
	}
}

static void compare(const long long got[SIDES], const int error[SIDES], const char *what,
		    unsigned kind)
{
	if (got[MOUNT] != got[PLAIN] || (got[MOUNT] < 0 && error[MOUNT] != error[PLAIN]))
		FAIL("operation %ld, %s %u: %lld %s, wanted %lld %s", step, what, kind, got[MOUNT],
		     strerrorname_np(error[MOUNT]), got[PLAIN], strerrorname_np(error[PLAIN]));
}

static void random_call(void)
{
	struct call call = {.kind = (unsigned)below(11), .size = below(below(8) ? 6000 : PIECE)};
	long long got[SIDES], position[SIDES];
	int error[SIDES], handle = (int)below(HANDLES);
	uint64_t seed = random_next(&state);

	call.offset = (off_t)below(LARGEST - PIECE);
	call.first = call.size ? below(call.size) : 0;
	for (int side = 0; side < SIDES; side++) {
		call.fd = handles[handle][side];
		call.at = bytes[side];
		pattern_fill(bytes[side], call.size, seed, 0);
		errno = 0;
		got[side] = make(&call);
		error[side] = errno;
		position[side] = lseek(call.fd, 0, SEEK_CUR);
	}
	compare(got, error, "call", call.kind);
	compare(position, error, "position after", call.kind);
	if (memcmp(bytes[MOUNT], bytes[PLAIN], call.size))
		FAIL("operation %ld, call %u: other bytes", step, call.kind);
}

static void open_handle(int handle)
{
	for (int side = 0; side < SIDES; side++) {
		if (handles[handle][side])
			OK(close(handles[handle][side]));
		handles[handle][side] = OK(open(paths[side], handle_flags[handle]));
	}
}

/* Shortens both files and fills them again, because the library leaves files with holes to the
 * kernel. */
static void cut_and_fill(void)
{
	off_t size = 2 * MIB + (off_t)below(2 * MIB);
	uint64_t seed = random_next(&state);

	for (int side = 0; side < SIDES; side++) {
		int fd = handles[0][side];
		off_t had = size_of(fd);

		OK(ftruncate(fd, size));
		if (had < LARGEST / 2)
			pattern_write(fd, seed, size, LARGEST / 2);
	}
}

static void replace_descriptor(void)
{
	for (int side = 0; side < SIDES; side++)
		OK(dup2(handles[0][side], handles[1][side]));
}

static void same_bytes(void)
{
	static char whole[SIDES][1 << 16];
	off_t size = size_of(handles[0][PLAIN]);

	EQUAL(size_of(handles[0][MOUNT]), size);
	for (off_t at = 0; at < size; at += sizeof(whole[0])) {
		off_t left = size - at, most = sizeof(whole[0]);
		size_t part = left < most ? left : most;

		for (int side = 0; side < SIDES; side++)
			read_all(handles[0][side], whole[side], part, at);
		if (memcmp(whole[MOUNT], whole[PLAIN], part))
			FAIL("operation %ld: other bytes after %lld", step, (long long)at);
	}
}

static void as_on_a_plain_file(void)
{
	static char plain[PATH_MAX];

	state = seed_from_environment(20261121);
	printf("GPUMEM_SEED=%llu\n", (unsigned long long)state);
	sprintf(plain, "%s/plain", getenv("WORK"));
	paths[MOUNT] = "file";
	paths[PLAIN] = plain;
	for (int side = 0; side < SIDES; side++) {
		int fd = OK(open(paths[side], O_RDWR | O_CREAT | O_TRUNC, 0644));
		pattern_write(fd, 1, 0, LARGEST / 2);
		OK(close(fd));
	}
	for (int handle = 0; handle < HANDLES; handle++)
		open_handle(handle);
	for (step = 0; step < OPERATIONS; step++) {
		random_call();
		if (below(100) == 0)
			open_handle((int)below(HANDLES));
		if (below(100) == 0)
			cut_and_fill();
		if (below(100) == 0)
			replace_descriptor();
		if (step % 500 == 0)
			same_bytes();
	}
	same_bytes();
}

/* --- A shared position */

#define RECORD	64
#define RECORDS 3000
#define WRITERS 3

static int shared;

/* Each writer fills whole records with its own letter. */
static void write_records(int writer)
{
	char record[RECORD];

	memset(record, 'a' + writer, sizeof(record));
	for (int i = 0; i < RECORDS; i++)
		EQUAL(write(shared, record, sizeof(record)), RECORD);
}

static void *write_in_thread(void *writer)
{
	write_records((int)(intptr_t)writer);
	return NULL;
}

static void check_records(void)
{
	int found[WRITERS] = {0};
	char record[RECORD];

	EQUAL(lseek(shared, 0, SEEK_CUR), (long long)WRITERS * RECORDS * RECORD);
	OK(lseek(shared, 0, SEEK_SET));
	for (int i = 0; i < WRITERS * RECORDS; i++) {
		EQUAL(read(shared, record, sizeof(record)), RECORD);
		CHECK(record[0] >= 'a' && record[0] < 'a' + WRITERS);
		for (int k = 1; k < RECORD; k++)
			EQUAL(record[k], record[0]);
		found[record[0] - 'a']++;
	}
	for (int i = 0; i < WRITERS; i++)
		EQUAL(found[i], RECORDS);
}

static void threads_share_a_position(void)
{
	pthread_t threads[WRITERS];

	shared = served_file("file", O_RDWR, 3 * MIB);
	for (intptr_t i = 0; i < WRITERS; i++)
		CHECK(pthread_create(&threads[i], NULL, write_in_thread, (void *)i) == 0);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	check_records();
}

static void processes_share_a_position(void)
{
	shared = served_file("file", O_RDWR, 3 * MIB);
	for (int i = 0; i < WRITERS; i++)
		spawn(write_records, i);
	join_all(WRITERS);
	check_records();
}

/* Several threads read at a shared position: each record is read by exactly one thread. */
static int reads[WRITERS];

static void *read_in_thread(void *reader)
{
	char record[RECORD];
	ssize_t n;

	while ((n = OK(read(shared, record, sizeof(record)))) > 0)
		reads[(intptr_t)reader] += n == RECORD;
	return NULL;
}

static void readers_share_a_position(void)
{
	pthread_t threads[WRITERS];
	int sum = 0;

	shared = served_file("file", O_RDWR, 3 * MIB);
	for (intptr_t i = 0; i < WRITERS; i++)
		CHECK(pthread_create(&threads[i], NULL, read_in_thread, (void *)i) == 0);
	for (int i = 0; i < WRITERS; i++) {
		pthread_join(threads[i], NULL);
		sum += reads[i];
	}
	EQUAL(sum, 3 * MIB / RECORD);
}

/* --- Effects of a write besides the bytes */

static void growing_is_seen_at_once(void)
{
	int fd = served_file("file", O_WRONLY, 3 * MIB), reader = OK(open("file", O_RDONLY));
	char record[1000];

	OK(lseek(fd, 0, SEEK_END));
	for (off_t end = 3 * MIB; end < 12 * MIB; end += sizeof(record)) {
		pattern_fill(record, sizeof(record), 2, end);
		EQUAL(write(fd, record, sizeof(record)), sizeof(record));
		if (end % 97 == 0)
			EQUAL(size_of(reader), end + (off_t)sizeof(record));
	}
	pattern_check(reader, 2, 3 * MIB, 9 * MIB);
	pattern_check(reader, 1, 0, 3 * MIB);
}

static void memory_ahead_is_given_back(void)
{
	int fd = served_file("file", O_WRONLY, 3 * MIB);

	for (off_t at = 3 * MIB; at < 40 * MIB + 5; at += MIB)
		pattern_write(fd, 3, at, MIB);
	OK(close(fd));
	CHECK(!leased("file"));
	struct stat st = stat_of("file");
	EQUAL(st.st_blocks * 512, (st.st_size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
}

static void times_move(void)
{
	const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	int fd = served_file("file", O_RDWR, 3 * MIB);
	char byte = 'x';

	for (int i = 0; i < 50; i++) {
		OK(futimens(fd, old));
		EQUAL(pwrite(fd, &byte, 1, i), 1);
		CHECK(stat_of("file").st_mtime > 1000);
		EQUAL(stat_of("file").st_atime, 1000);
		EQUAL(pread(fd, &byte, 1, i), 1);
		CHECK(stat_of("file").st_atime > 1000);
	}
}

static void reads_move_no_mtime(void)
{
	const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	int fd = served_file("file", O_RDWR, 3 * MIB);

	OK(futimens(fd, old));
	pattern_check(fd, 1, 0, 2 * MIB);
	CHECK(leased("file"));
	EQUAL(stat_of("file").st_mtime, 1000);
	OK(close(fd));
	CHECK(!leased("file"));
	EQUAL(stat_of("file").st_mtime, 1000);
}

static void the_file_limit_holds(void)
{
	int fd = served_file("file", O_RDWR, 3 * MIB);

	OK(signal(SIGXFSZ, SIG_IGN) == SIG_ERR ? -1 : 0);
	OK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){3 * MIB + 10, RLIM_INFINITY}));
	EQUAL(pwrite(fd, "0123456789abcdef", 16, 3 * MIB), 10);
	FAILS(EFBIG, pwrite(fd, "0123456789abcdef", 16, 3 * MIB + 10));
	EQUAL(size_of(fd), 3 * MIB + 10);
}

/* --- State that a write does not change */

static void find_lock(int unused)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd = OK(open("file", O_RDWR));

	(void)unused;
	OK(fcntl(fd, F_GETLK, &lock));
	EQUAL(lock.l_type, F_WRLCK);
}

/* The library opens a file again that the program opened write-only: opening and closing this
 * descriptor must not drop locks. */
static void locks_are_kept(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd = new_file("file");

	pattern_write(fd, 1, 0, 3 * MIB);
	OK(close(fd));
	CHECK(!leased("file"));
	fd = OK(open("file", O_WRONLY));
	OK(fcntl(fd, F_SETLK, &lock));
	for (int i = 0; i < 100; i++)
		pattern_write(fd, 2, i * 100, 100);
	CHECK(leased("file"));
	spawn(find_lock, 0);
	join_all(1);
}

static void lowest_numbers_are_the_program_s(void)
{
	int fd = served_file("file", O_RDWR, 3 * MIB), next = OK(open("/dev/null", O_RDONLY));

	EQUAL(next, fd + 1);
}

/* Closes all descriptors, like a program that becomes a background process. */
static void closing_everything(void)
{
	int fd = served_file("file", O_RDWR, 3 * MIB);

	for (int i = 3; i < 70000; i++)
		if (i != fd)
			close(i);
	CHECK(leased("file"));
	pattern_check(fd, 1, 0, 3 * MIB);
	OK(close_range(fd + 1, ~0U, 0));
	CHECK(leased("file"));
	pattern_write(fd, 2, 0, 1000);
	pattern_check(fd, 2, 0, 1000);
	closefrom(3);
	CHECK(!leased("file"));
	fd = OK(open("file", O_RDONLY));
	pattern_check(fd, 2, 0, 1000);
}

/* By calls that the library cannot see: no write may go to the file that had the number before. */
static void descriptors_are_replaced_behind_the_back(void)
{
	int fd = served_file("file", O_RDWR, 3 * MIB), other = new_file("other");

	pattern_write(other, 5, 0, 3 * MIB);
	OK(syscall(SYS_dup2, other, fd));
	pattern_write(fd, 6, 0, 5000);
	pattern_check(other, 6, 0, 5000);
	int first = OK(open("file", O_RDONLY));
	pattern_check(first, 1, 0, 3 * MIB);
}

static void own_leases_give_way(void)
{
	int fd = served_file("file", O_RDWR, 3 * MIB);

	OK(ftruncate(fd, MIB));
	EQUAL(size_of(fd), MIB);
	pattern_check(fd, 1, 0, MIB);
	OK(close(served_file("path", O_RDWR, 3 * MIB)));
	fd = served_file("again", O_RDWR, 3 * MIB);
	OK(truncate("again", 5));
	EQUAL(size_of(fd), 5);
	fd = served_file("opened", O_RDWR, 3 * MIB);
	OK(open("opened", O_WRONLY | O_TRUNC));
	EQUAL(size_of(fd), 0);
	fd = served_file("stream", O_RDWR, 3 * MIB);
	CHECK(fopen("stream", "w"));
	EQUAL(size_of(fd), 0);
	fd = served_file("punched", O_RDWR, 4 * MIB);
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * MIB));
	zero_check(fd, 0, 2 * MIB);
	fd = served_file("moved", O_RDWR, 3 * MIB);
	OK(rename("moved", other("moved")));
	pattern_check(fd, 1, 0, 3 * MIB);
}

/* Windows close while threads use them. */
static atomic_bool done;

static void *use_a_part(void *part)
{
	off_t base = (intptr_t)part * MIB;
	uint64_t random = (uint64_t)base;

	for (uint64_t seed = 2; !done; seed++) {
		off_t at = base + (off_t)(random_next(&random) % (MIB - 3000));

		pattern_write(shared, seed, at, 3000);
		pattern_check(shared, seed, at, 3000);
	}
	return NULL;
}

static void shortened_while_in_use(void)
{
	pthread_t threads[WRITERS];

	shared = served_file("file", O_RDWR, 4 * MIB);
	for (intptr_t i = 0; i < WRITERS; i++)
		CHECK(pthread_create(&threads[i], NULL, use_a_part, (void *)i) == 0);
	for (int i = 0; i < 200; i++) {
		OK(ftruncate(shared, 4 * MIB - 1 - i % 7));
		pattern_write(shared, 1, 3 * MIB, MIB);
		OK(close(OK(open("file", O_RDWR))));
	}
	done = true;
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
}

/* More windows than the number of files that a program uses heavily. */
static void small_mappings_of_other_files(void)
{
	for (int i = 0; i < 200; i++) {
		char name[16];
		sprintf(name, "small%d", i);
		int fd = new_file(name);
		pattern_write(fd, 1, 0, 100);
		void *at = mmap(NULL, 100, PROT_READ, MAP_PRIVATE, fd, 0);
		OK(close(fd));
		OK(munmap(at, 100));
	}
	OK(close(served_file("file", O_RDWR, 3 * MIB)));
}

int main(int argc, char **argv)
{
	static const struct prog_test tests[] = {
	    TEST(as_on_a_plain_file),
	    TEST(small_mappings_of_other_files),
	    TEST(threads_share_a_position),
	    TEST(processes_share_a_position),
	    TEST(readers_share_a_position),
	    TEST(growing_is_seen_at_once),
	    TEST(memory_ahead_is_given_back),
	    TEST(times_move),
	    TEST(reads_move_no_mtime),
	    TEST(the_file_limit_holds),
	    TEST(locks_are_kept),
	    TEST(lowest_numbers_are_the_program_s),
	    TEST(closing_everything),
	    TEST(descriptors_are_replaced_behind_the_back),
	    TEST(own_leases_give_way),
	    TEST(shortened_while_in_use),
	};
	static const char *const kinds[] = {"read", "written", NULL};

	return preload_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), "0", kinds);
}
