/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin */
/* backends: host standin cuda
 * mount: recovery=transparent
 * needs: daemon
 * Sets of versions: gpumem_version_publish, gpumem_watch, gpumem_switch. */
#include "tests/mount/kills.h"

#include "tests/mount/client_gpu.h"

#include <inttypes.h>
#include <poll.h>
#include <sys/xattr.h>

#define SIZE (5 * MIB + 7)

/* A set in which the version of a number has the files a and b, filled with a pattern of the
 * number.
 */
static void version_make(const char *set, unsigned number)
{
	char path[64];

	mkdir(set, 0755);
	snprintf(path, sizeof(path), "%s/%u", set, number);
	OK(mkdir(path, 0755));
	for (const char *name = "ab"; *name; name++) {
		snprintf(path, sizeof(path), "%s/%u/%c", set, number, *name);
		OK(close(patterned_file(path, number, SIZE)));
	}
}

static const char *link_of(const char *path)
{
	static char target[64];

	memset(target, 0, sizeof(target));
	OK(readlink(path, target, sizeof(target) - 1));
	return target;
}

static void publish_and_roll_back(void)
{
	char text[32] = "";

	version_make("set", 1);
	version_make("set", 2);
	version_make("set", 3);
	REFUSED(ENOENT, "previous", gpumem_version_rollback("set"));
	GOOD(gpumem_version_publish("set", "1"));
	EQUAL(strcmp(link_of("set/current"), "1"), 0);
	CHECK(!exists("set/previous"));
	GOOD(gpumem_version_publish("set", "2"));
	GOOD(gpumem_version_publish("set", "3"));
	EQUAL(strcmp(link_of("set/current"), "3"), 0);
	EQUAL(strcmp(link_of("set/previous"), "2"), 0);
	/* Again: the way back stays. */
	GOOD(gpumem_version_publish("set", "3"));
	EQUAL(strcmp(link_of("set/previous"), "2"), 0);
	GOOD(gpumem_version_rollback("set"));
	EQUAL(strcmp(link_of("set/current"), "2"), 0);
	EQUAL(strcmp(link_of("set/previous"), "3"), 0);
	CHECK(getxattr("set/2", "user.versions.published", text, sizeof(text)) > 0);
	EQUAL(names_in("set"), 5);
}

static void refused_without_a_trace(void)
{
	static const char *const names[] = {"", ".", "..", ".hidden", "a/b", "current", "previous"};

	version_make("set", 1);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		REFUSED(EINVAL, "no name", gpumem_version_publish("set", names[i]));
	REFUSED(ENOENT, "2", gpumem_version_publish("set", "2"));
	REFUSED(ENOENT, "nowhere", gpumem_version_publish("nowhere", "1"));
	OK(symlink("1", "set/link"));
	FAILS(ELOOP, gpumem_version_publish("set", "link"));
	OK(mkdir("set/current", 0755));
	REFUSED(EEXIST, "current is no link", gpumem_version_publish("set", "1"));
	OK(rmdir("set/current"));
	OK(close(new_file("set/previous")));
	REFUSED(EEXIST, "previous is no link", gpumem_version_publish("set", "1"));
	OK(unlink("set/previous"));
	OK(symlink("/etc", "set/previous"));
	FAILS(ELOOP, gpumem_version_rollback("set"));
	EQUAL(names_in("set"), 3);
}

static bool is_readable(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	return OK(poll(&poll_fd, 1, 0)) == 1;
}

static void a_watch(void)
{
	version_make("set", 1);
	version_make("set", 2);
	int fd = OK(gpumem_watch("set"));

	CHECK(!is_readable(fd));
	EQUAL(gpumem_watch_read(fd), 0);
	GOOD(gpumem_version_publish("set", "1"));
	CHECK(is_readable(fd));
	EQUAL(gpumem_watch_read(fd), 1);
	CHECK(!is_readable(fd));
	GOOD(gpumem_version_publish("set", "2"));
	EQUAL(gpumem_watch_read(fd), 1);
	OK(unlink("set/current"));
	gpumem_watch_read(fd);
	OK(symlink("1", "set/current"));
	EQUAL(gpumem_watch_read(fd), 1);
	/* Other names are no news. */
	OK(rename("set/1", "set/0"));
	EQUAL(gpumem_watch_read(fd), 0);
	pid_t keeper = keeper_pid(), daemon = serving_daemon(keeper), next;

	OK(kill(daemon, SIGKILL));
	AWAIT((next = serving_daemon(keeper)) && next != daemon);
	GOOD(gpumem_version_publish("set", "0"));
	EQUAL(gpumem_watch_read(fd), 1);
	OK(close(fd));
	REFUSED(ENOTDIR, "set/0/a", gpumem_watch("set/0/a"));
}

static int leases_of(const char *path)
{
	char text[24] = "";

	OK(getxattr(path, "user.gpumem.leases", text, sizeof(text) - 1));
	return atoi(text);
}

static void device_expect(gm_CUdeviceptr address, unsigned seed)
{
	unsigned char *bytes = malloc(SIZE);

	MUST(cuMemcpyDtoH(bytes, address, SIZE));
	expect_pattern(bytes, seed, 0, SIZE);
	free(bytes);
}

/* Both files of a set, with the addresses of the host and, on a GPU, of the device. */
struct reader {
	gpumem *files[2];
	unsigned char *bytes[2];
	gm_CUdeviceptr addresses[2];
};

static void reader_open(struct reader *reader)
{
	static const char *const paths[] = {"set/1/a", "set/1/b"};

	if (on_gpu())
		use_gpu();
	for (int i = 0; i < 2; i++) {
		reader->files[i] = lease(paths[i], O_RDWR);
		if (on_gpu())
			reader->addresses[i] = device_pointer(reader->files[i], SIZE);
		else
			reader->bytes[i] = host_pointer(reader->files[i], SIZE);
	}
}

static void reader_expect(const struct reader *reader, unsigned seed)
{
	for (int i = 0; i < 2; i++) {
		if (on_gpu())
			device_expect(reader->addresses[i], seed);
		else
			expect_pattern(reader->bytes[i], seed, 0, SIZE);
	}
}

static void the_other_version_at_the_same_addresses(void)
{
	static const char *const paths[] = {"set/2/a", "set/2/b"}, *const back[] = {"set/1/a",
										    "set/1/b"};
	struct reader reader = {0};

	version_make("set", 1);
	version_make("set", 2);
	reader_open(&reader);
	reader_expect(&reader, 1);
	GOOD(gpumem_switch(reader.files, paths, 2));
	reader_expect(&reader, 2);
	EQUAL(leases_of("set/1/a"), 0);
	EQUAL(leases_of("set/2/a"), 1);
	EQUAL(info_of(reader.files[1]).inode, stat_of("set/2/b").st_ino);
	/* The handle stands for the other file: also after parking. */
	GOOD(gpumem_park(reader.files[0]));
	REFUSED(EBUSY, "parked", gpumem_switch(reader.files, back, 2));
	GOOD(gpumem_unpark(reader.files[0]));
	reader_expect(&reader, 2);
	OK(unlink("set/1/b"));
	FAILS(ENOENT, gpumem_switch(reader.files, back, 2));
	reader_expect(&reader, 2);
	GOOD(gpumem_switch(reader.files, back, 1));
	if (on_gpu())
		device_expect(reader.addresses[0], 1);
	else
		expect_pattern(reader.bytes[0], 1, 0, SIZE);
	GOOD(gpumem_close(reader.files[0]));
	GOOD(gpumem_close(reader.files[1]));
	EQUAL(leases_of("set/2/b"), 0);
}

/* A large file fits behind no mapping: the first of both was switched already, and is again what it
 * was. */
static void all_or_none(void)
{
	static const char *const paths[] = {"set/2/a", "large"};
	struct reader reader = {0};

	version_make("set", 1);
	version_make("set", 2);
	reader_open(&reader);
	OK(ftruncate(new_file("large"), 96 * MIB));
	FAILS(ENOSPC, gpumem_switch(reader.files, paths, 2));
	reader_expect(&reader, 1);
	EQUAL(leases_of("set/1/a"), 1);
	EQUAL(leases_of("set/2/a"), 0);
	OK(truncate("large", 0));
	REFUSED(EINVAL, "empty", gpumem_switch(reader.files, paths, 2));
	gpumem *twice[] = {reader.files[0], reader.files[0]};

	REFUSED(EINVAL, "twice", gpumem_switch(twice, paths, 2));
	reader_expect(&reader, 1);
	GOOD(gpumem_switch(reader.files, paths, 0));
	GOOD(gpumem_close(reader.files[0]));
	GOOD(gpumem_close(reader.files[1]));
}

static void read_as_a_user(int unused)
{
	static const char *const copied[] = {"set/2/a"}, *const trusted[] = {"set/3/a"};

	(void)unused;
	OK(setresuid(65534, 65534, 65534));
	gpumem *file = lease("set/1/a", O_RDONLY);

	EQUAL(info_of(file).flags & GPUMEM_INFO_PRIVATE, 0);
	REFUSED(EACCES, "trusted", gpumem_switch(&file, copied, 1));
	GOOD(gpumem_switch(&file, trusted, 1));
	EQUAL(info_of(file).inode, stat_of("set/3/a").st_ino);
	GOOD(gpumem_close(file));
}

/* A reader's private copy would not be the version, and could not be switched again. */
static void a_version_that_is_copied(void)
{
	for (unsigned version = 1; version <= 3; version++)
		version_make("set", version);
	OK(setxattr("set/1/a", "user.gpumem.share", "trusted", 7, 0));
	OK(setxattr("set/3/a", "user.gpumem.share", "trusted", 7, 0));
	spawn(read_as_a_user, 0);
	join_all(1);
}

static void another_gpu(void)
{
	const char *path = other("file");
	struct reader reader = {0};

	version_make("set", 1);
	OK(close(patterned_file(path, 2, SIZE)));
	reader_open(&reader);
	REFUSED(EXDEV, "same GPU", gpumem_switch(reader.files, &path, 1));
	reader_expect(&reader, 1);
	OK(unlink(path));
	GOOD(gpumem_close(reader.files[0]));
	GOOD(gpumem_close(reader.files[1]));
}

CLIENT_PROG(TEST(publish_and_roll_back), TEST(refused_without_a_trace), TEST(a_watch),
	    TEST(the_other_version_at_the_same_addresses), TEST(all_or_none),
	    TEST(a_version_that_is_copied), TEST(another_gpu))
