/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* kills: no
 * mount: size=224M
 * backends: host standin cuda
 * The owner of a file and the sharers of the file are two ordinary users: a reader in host/ does
 * not block the owner's operations, and the owner can end the leases of other users. */
#include "tests/mount/protocol.h"

#include <sys/statvfs.h>

#define OTHER_USER 65533
#define NEW_SEED   9

static int to_sharer[2], from_sharer[2];
static char host_path[PATH_MAX];

static void become(uid_t user)
{
	OK(setgroups(0, NULL));
	OK(setresgid(user, user, user));
	OK(setresuid(user, user, user));
}

static void step(const int ends[2])
{
	EQUAL(OK(write(ends[1], "", 1)), 1);
}

static void await(const int ends[2])
{
	char byte;

	EQUAL(OK(read(ends[0], &byte, 1)), 1);
}

static struct answer lease_of(int connection, const char *path, int flags)
{
	int fd = OK(open(path, flags));
	struct answer answer = lease_over(connection, fd);

	OK(close(fd));
	return answer;
}

static char *map_of(const struct answer *answer, int protection)
{
	char *at = mmap(NULL, MIB, protection, MAP_SHARED, answer->fds[0], 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static void check_map(const char *map, uint64_t seed)
{
	for (long i = 0; i < MIB; i += 512)
		EQUAL((unsigned char)map[i], pattern_at(seed, i));
}

/* Makes a file of the owner in the sub-test's directory, or in host/ with a name of the sub-test.
 */
static const char *prepare(const char *where, mode_t mode)
{
	OK(pipe(to_sharer));
	OK(pipe(from_sharer));
	OK(chmod(".", 0777));
	snprintf(host_path, sizeof(host_path), "%s/%s.%d", getenv("HOSTDIR"), getenv("TEST"),
		 getpid());
	const char *path = strcmp(where, "host") ? "file" : host_path;
	int fd = filled_file(path, mode);

	OK(fchmod(fd, mode));
	OK(fchown(fd, USER, USER));
	OK(close(fd));
	return path;
}

static void join_sharer(void)
{
	step(to_sharer);
	join_all(1);
}

static void read_host(int unused)
{
	(void)unused;
	become(OTHER_USER);
	int connection = dial();
	struct answer answer = lease_of(connection, host_path, O_RDONLY);
	char *map = map_of(&answer, PROT_READ);

	EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_READ_ONLY);
	check_map(map, 3);
	step(from_sharer);
	await(to_sharer); /* the file was written again, and is longer */
	check_map(map, NEW_SEED);
	step(from_sharer);
	await(to_sharer); /* the file was moved to a GPU, and changed there */
	check_map(map, NEW_SEED);
}

static void a_reader_of_host_is_in_nobodys_way(void)
{
	const char *path = prepare("host", 0644);

	spawn(read_host, 0);
	await(from_sharer);
	become(USER);
	int fd = OK(open(path, O_RDWR | O_TRUNC));

	EQUAL(leases_of(fd), 1);
	pattern_write(fd, NEW_SEED, 0, 2 * BYTES);
	step(to_sharer);
	await(from_sharer);
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, BYTES, BYTES));
	zero_check(fd, BYTES, BYTES);
	OK(close(fd));
	rename_when_closed(path, "moved");
	fd = OK(open("moved", O_RDWR));
	pattern_write(fd, 5, 0, BYTES);
	join_sharer();
	pattern_check(fd, 5, 0, BYTES);
	expect_leases(fd, 0);
}

/* Holds a lease for writing until told to end, checks its memory, and exits. */
static void share_to_write(int on_host)
{
	const char *path = on_host ? host_path : "file";

	become(OTHER_USER);
	int connection = dial();
	struct answer answer = lease_of(connection, path, O_RDWR);
	bool mappable = answer.packet.layout.kind != GPUMEM_KIND_DEVICE;
	char *map = mappable ? map_of(&answer, PROT_READ | PROT_WRITE) : NULL;
	struct gpumem_msg_extend extend = {.header = head(GPUMEM_MSG_EXTEND, sizeof(extend)),
					   .lease = answer.packet.layout.lease};
	struct gpumem_msg_release release = {.header = head(GPUMEM_MSG_RELEASE, sizeof(release)),
					     .lease = answer.packet.layout.lease};
	struct gpumem_dropped dropped;
	int fd = OK(open(path, O_RDWR));

	FAILS(EPERM, ioctl(fd, GPUMEM_IOC_DROP, &dropped));
	OK(close(fd));
	step(from_sharer);
	await(to_sharer); /* the lease was ended, and the file has other memory */
	if (map) {
		check_map(map, 3);
		memset(map, 0xee, MIB); /* reaches no other process */
	}
	say(connection, &extend, sizeof(extend));
	EQUAL(hear(connection).packet.error.error, ENOENT);
	step(from_sharer);
	await(to_sharer);
	say(connection, &release, sizeof(release));
	EQUAL(hear(connection).packet.header.type, GPUMEM_MSG_DONE);
	step(from_sharer);
	await(to_sharer);
}

static unsigned long free_blocks(const char *path)
{
	struct statvfs st;

	OK(statvfs(path, &st));
	return st.f_bfree;
}

/* Free memory can be compared only on a GPU used by this test alone. */
static bool counts(void)
{
	return strcmp(getenv("BACKEND"), "cuda") != 0;
}

static void end_leases(const char *path, int wanted)
{
	struct gpumem_dropped dropped;
	int fd = OK(open(path, O_RDONLY));

	EQUAL(leases_of(fd), wanted);
	OK(ioctl(fd, GPUMEM_IOC_DROP, &dropped));
	EQUAL(dropped.leases, wanted);
	EQUAL(leases_of(fd), 0);
	OK(ioctl(fd, GPUMEM_IOC_DROP, &dropped));
	EQUAL(dropped.leases, 0);
	OK(close(fd));
}

/* The sharer's mapping no longer shows the file. The mapped memory is not free before the sharer
 * ends: after its lease a process can still have the memory. */
static void the_owner_ends_leases_on_a_gpu(void)
{
	const char *path = prepare("gpu", 0666);

	spawn(share_to_write, false);
	await(from_sharer);
	become(USER);
	FAILS(EBUSY, open(path, O_RDWR | O_TRUNC));
	unsigned long before = free_blocks(".");

	end_leases(path, 1);
	OK(truncate(path, 0));
	if (counts())
		EQUAL(free_blocks("."), before);
	int fd = OK(open(path, O_RDWR));

	pattern_write(fd, NEW_SEED, 0, BYTES);
	if (counts())
		CHECK(free_blocks(".") < before);
	step(to_sharer);
	await(from_sharer);
	pattern_check(fd, NEW_SEED, 0, BYTES);
	unsigned long with_both = free_blocks(".");

	if (counts())
		CHECK(with_both < before);
	step(to_sharer);
	await(from_sharer);
	if (counts())
		CHECK(free_blocks(".") <= with_both);
	join_sharer();
	/* Only the new bytes take memory once the process has ended. */
	while (counts() && free_blocks(".") <= with_both)
		usleep(1000);
	pattern_check(fd, NEW_SEED, 0, BYTES);
}

/* Keeps the file open, and the lease. */
static void read_open_host(int unused)
{
	(void)unused;
	become(OTHER_USER);
	int fd = OK(open(host_path, O_RDONLY));
	struct answer answer = lease_over(dial(), fd);
	char *map = map_of(&answer, PROT_READ);

	step(from_sharer);
	await(to_sharer); /* the file was moved to a GPU, and changed there */
	check_map(map, 3);
	pattern_check(fd, 3, 0, BYTES);
}

/* As on another file system, the reader keeps what was there. */
static void a_reader_that_stays_does_not_hinder_mv(void)
{
	const char *path = prepare("host", 0644);
	char command[PATH_MAX + 32];

	spawn(read_open_host, 0);
	await(from_sharer);
	become(USER);
	snprintf(command, sizeof(command), "mv '%s' moved", path);
	EQUAL(system(command), 0);
	CHECK(!exists(path));
	int fd = OK(open("moved", O_RDWR));

	pattern_check(fd, 3, 0, BYTES);
	pattern_write(fd, NEW_SEED, 0, BYTES);
	join_sharer();
}

static void the_owner_ends_leases_and_moves(void)
{
	const char *path = prepare("host", 0666);

	spawn(share_to_write, true);
	await(from_sharer);
	become(USER);
	FAILS(EBUSY, rename(path, "moved"));
	FAILS(EBUSY, truncate(path, 0));
	end_leases(path, 1);
	/* Memory of files that the tests before have removed is freed within a second. */
	sleep(2);
	unsigned long before = free_blocks(getenv("HOSTDIR"));

	rename_when_closed(path, "moved");
	if (counts())
		EQUAL(free_blocks(getenv("HOSTDIR")), before);
	int fd = OK(open("moved", O_RDWR));

	step(to_sharer);
	await(from_sharer);
	pattern_check(fd, 3, 0, BYTES);
	step(to_sharer);
	await(from_sharer);
	join_sharer();
	/* The memory is freed when the sharer's mapping ends with the process. */
	AWAIT(!counts() || free_blocks(getenv("HOSTDIR")) > before);
	CHECK(!counts() || free_blocks(getenv("HOSTDIR")) > before);
}

static void a_file_without_leases_and_one_that_has_none_to_end(void)
{
	struct gpumem_dropped dropped;
	int fd = filled_file("file", 0666);

	OK(ioctl(fd, GPUMEM_IOC_DROP, &dropped));
	EQUAL(dropped.leases, 0);
	FAILS(EISDIR, ioctl((int)OK(open(".", O_RDONLY)), GPUMEM_IOC_DROP, &dropped));
	FAILS(ENOTTY, ioctl(fd, _IO('g', _IOC_NR(GPUMEM_IOC_DROP)), &dropped));
	become(OTHER_USER);
	FAILS(EPERM, ioctl(fd, GPUMEM_IOC_DROP, &dropped));
}

PROG(TEST(a_reader_of_host_is_in_nobodys_way), TEST(the_owner_ends_leases_on_a_gpu),
     TEST(a_reader_that_stays_does_not_hinder_mv), TEST(the_owner_ends_leases_and_moves),
     TEST(a_file_without_leases_and_one_that_has_none_to_end))
