/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin tsan */
/* backends: host standin cuda
 * timeout: 300
 * CPU pointers of libgpumem: reading and changing files through mappings, and files that cannot be
 * mapped. */
#include "tests/mount/client.h"

#include <sys/xattr.h>

static void seen_both_ways(void)
{
	size_t bytes = 5 * MIB + 123;
	int fd = patterned_file("file", 1, bytes);
	gpumem *file = lease("file", O_RDWR);
	unsigned char *at = host_pointer(file, bytes);

	expect_pattern(at, 1, 0, bytes);
	pattern_fill(at + 3 * MIB - 7, 1000, 2, 3 * MIB - 7);
	GOOD(gpumem_flush(file));
	pattern_check(fd, 2, 3 * MIB - 7, 1000);
	pattern_write(fd, 3, 4 * MIB, MIB);
	expect_pattern(at, 3, 4 * MIB, 5 * MIB);
	expect_pattern(at, 1, 0, 3 * MIB - 7);
	GOOD(gpumem_close(file));
}

static void info_says_what_it_is(void)
{
	patterned_file("file", 1, 3 * MIB + 1);
	gpumem *file = lease("file", O_RDWR);
	struct gpumem_info info = info_of(file);

	EQUAL(info.size, 3 * MIB + 1);
	CHECK(info.mappable >= 4 * MIB && info.mappable % (2 * MIB) == 0);
	EQUAL(info.kind, on_gpu() ? GPUMEM_FILE_DEVICE : GPUMEM_FILE_SIMULATED);
	EQUAL(info.flags, 0);
	EQUAL(info.device, 0);
	EQUAL(info.mapped, 0);
	EQUAL(info.host_mapped, 0);
	CHECK(info.n_chunks >= 1);
	CHECK(info.provider[0] == '\0');
	struct stat st;
	OK(stat("file", &st));
	EQUAL(info.filesystem, st.st_dev);
	EQUAL(info.inode, st.st_ino);
	host_pointer(file, 3 * MIB + 1);
	info = info_of(file);
	EQUAL(info.host_mapped, info.mappable);
	CHECK(info.provider[0] && !strcmp(info.provider, "mmap") == !on_gpu());
	GOOD(gpumem_unmap_host(file));
	EQUAL(info_of(file).host_mapped, 0);
	GOOD(gpumem_close(file));
}

static void old_programs_know_less(void)
{
	patterned_file("file", 1, MIB);
	gpumem *file = lease("file", O_RDWR);
	struct {
		struct gpumem_info info;
		char more[16];
	} newer = {.info.bytes = sizeof(newer), .more = "xxxxxxxxxxxxxxx"};
	struct gpumem_info older = {.bytes = offsetof(struct gpumem_info, mappable),
				    .mappable = 12345};

	GOOD(gpumem_get_info(file, &newer.info));
	EQUAL(newer.info.size, MIB);
	EQUAL(newer.more[0], 0);
	EQUAL(newer.more[15], 0);
	GOOD(gpumem_get_info(file, &older));
	EQUAL(older.size, MIB);
	EQUAL(older.mappable, 12345);
	older.bytes = 0;
	REFUSED(EINVAL, "info->bytes", gpumem_get_info(file, &older));
	GOOD(gpumem_close(file));
}

static void several_chunks_are_one_range(void)
{
	int fd = new_file("file");

	/* Write in steps, so that the file consists of several chunks. */
	for (int i = 0; i < 6; i++)
		pattern_write(fd, 4, i * 4 * MIB, 4 * MIB);
	gpumem *file = lease("file", O_RDWR);
	unsigned char *at = host_pointer(file, 24 * MIB);

	expect_pattern(at, 4, 0, 24 * MIB);
	GOOD(gpumem_close(file));
}

static void small_files(void)
{
	for (size_t bytes = 1; bytes < 300000; bytes = bytes * 7 + 1) {
		char name[32];

		sprintf(name, "file%zu", bytes);
		int fd = patterned_file(name, bytes, bytes);
		int beside = patterned_file("beside", 77, bytes);
		gpumem *file = lease(name, O_RDWR);
		unsigned char *at = host_pointer(file, bytes);

		expect_pattern(at, bytes, 0, bytes);
		memset(at, 0x5a, bytes);
		GOOD(gpumem_flush(file));
		for (size_t i = bytes; i < info_of(file).mappable; i += 4096)
			at[i] = 0x77;
		GOOD(gpumem_close(file));
		pattern_check(beside, 77, 0, bytes);
		EQUAL(size_of(fd), bytes);
		OK(close(beside));
		OK(unlink("beside"));
	}
}

static void holes_are_zero(void)
{
	int fd = new_file("file");

	OK(ftruncate(fd, 5 * MIB));
	pattern_write(fd, 5, 2 * MIB + 5, 100);
	gpumem *file = lease("file", O_RDWR);
	unsigned char *at = host_pointer(file, 5 * MIB);

	expect_zero(at, 0, 2 * MIB + 5);
	expect_pattern(at, 5, 2 * MIB + 5, 2 * MIB + 105);
	expect_zero(at, 2 * MIB + 105, 5 * MIB);
	at[MIB] = 9;
	GOOD(gpumem_close(file));
	unsigned char byte;
	read_all(fd, &byte, 1, MIB);
	EQUAL(byte, 9);
}

static void host_files(void)
{
	char path[PATH_MAX];

	sprintf(path, "%s/client_host_file", getenv("HOSTDIR"));
	int fd = patterned_file(path, 6, MIB + 17);
	gpumem *file = lease(path, O_RDWR);
	unsigned char *at = host_pointer(file, MIB + 17);
	struct gpumem_info info = info_of(file);

	EQUAL(info.kind, GPUMEM_FILE_HOST);
	EQUAL(info.flags, GPUMEM_INFO_HOST);
	CHECK(!strcmp(info.provider, "mmap"));
	expect_pattern(at, 6, 0, MIB + 17);
	at[5] = 200;
	unsigned char byte;
	read_all(fd, &byte, 1, 5);
	EQUAL(byte, 200);
	pattern_write(fd, 7, 0, 3 * MIB);
	GOOD(gpumem_extend(file));
	CHECK(host_pointer(file, 3 * MIB) == at);
	expect_pattern(at, 7, 0, 3 * MIB);
	GOOD(gpumem_close(file));
	OK(unlink(path));
}

static void write_byte(unsigned char *at)
{
	*at = 1;
}

static void must_fault(unsigned char *at)
{
	int status;
	pid_t pid = OK(fork());

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		write_byte(at);
		_exit(0);
	}
	OK(waitpid(pid, &status, 0));
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void host_files_for_readers(void)
{
	char path[PATH_MAX];

	sprintf(path, "%s/client_host_read", getenv("HOSTDIR"));
	int fd = patterned_file(path, 8, MIB);
	gpumem *file = lease(path, O_RDONLY);
	unsigned char *at = host_pointer(file, MIB);

	EQUAL(info_of(file).flags, GPUMEM_INFO_HOST | GPUMEM_INFO_READ_ONLY);
	expect_pattern(at, 8, 0, MIB);
	pattern_write(fd, 9, 0, 4096);
	expect_pattern(at, 9, 0, 4096);
	must_fault(at);
	GOOD(gpumem_close(file));
	OK(unlink(path));
}

static void readers_get_a_copy(void)
{
	int fd = patterned_file("file", 10, 3 * MIB);
	gpumem *file = lease("file", O_RDONLY);
	unsigned char *at = host_pointer(file, 3 * MIB);

	EQUAL(info_of(file).flags, GPUMEM_INFO_PRIVATE);
	expect_pattern(at, 10, 0, 3 * MIB);
	pattern_write(fd, 11, 0, MIB);
	expect_pattern(at, 10, 0, MIB);
	memset(at + MIB, 0, 1000);
	pattern_check(fd, 10, MIB, MIB);
	/* No other process has a lease, so the file may change. */
	OK(ftruncate(fd, MIB));
	REFUSED(ENOTSUP, "not supported", gpumem_extend(file));
	GOOD(gpumem_close(file));
}

static void trusted_readers_get_the_file(void)
{
	int fd = patterned_file("file", 12, 3 * MIB);

	OK(fsetxattr(fd, "user.gpumem.share", "trusted", 7, 0));
	gpumem *file = lease("file", O_RDONLY);
	unsigned char *at = host_pointer(file, 3 * MIB);

	EQUAL(info_of(file).flags, GPUMEM_INFO_READ_ONLY);
	pattern_write(fd, 13, MIB, MIB);
	expect_pattern(at, 13, MIB, 2 * MIB);
	if (!on_gpu())
		must_fault(at);
	FAILS(EBUSY, ftruncate(fd, 0));
	GOOD(gpumem_close(file));
	CHECK(shrinks(fd, 0));
}

static void follows_growth(void)
{
	int fd = patterned_file("file", 14, MIB);
	gpumem *file = lease("file", O_RDWR);
	unsigned char *at = host_pointer(file, MIB);

	for (size_t bytes = MIB; bytes <= 4 * MIB; bytes += MIB / 2 + 1) {
		pattern_write(fd, 14, 0, bytes);
		GOOD(gpumem_extend(file));
		EQUAL(info_of(file).size, bytes);
		CHECK(host_pointer(file, bytes) == at);
		expect_pattern(at, 14, 0, bytes);
	}
	/* Extend beyond the address space reserved behind the mapping. */
	pattern_write(fd, 15, 0, MIB);
	pattern_write(fd, 15, 69 * MIB, MIB);
	REFUSED(ENOSPC, "map it again", gpumem_extend(file));
	EQUAL(info_of(file).size, 70 * MIB);
	expect_pattern(at, 15, 0, MIB);
	GOOD(gpumem_unmap_host(file));
	at = host_pointer(file, 70 * MIB);
	expect_pattern(at, 15, 0, MIB);
	expect_pattern(at, 15, 69 * MIB, 70 * MIB);
	GOOD(gpumem_close(file));
}

static void two_mappings_are_one_memory(void)
{
	patterned_file("file", 19, 2 * MIB);
	gpumem *one = lease("file", O_RDWR), *two = lease("file", O_RDWR);
	unsigned char *a = host_pointer(one, 2 * MIB), *b = host_pointer(two, 2 * MIB);

	CHECK(a != b);
	a[77] = 1;
	GOOD(gpumem_flush(one));
	EQUAL(b[77], 1);
	CHECK(host_pointer(one, 2 * MIB) == a);
	GOOD(gpumem_close(one));
	b[78] = 2;
	EQUAL(b[77], 1);
	GOOD(gpumem_close(two));
}

static void open_refused(const char *path, int flags, int error, const char *text)
{
	errno = 0;
	if (gpumem_open(path, flags) || errno != error || !strstr(gpumem_error(), text)) {
		printf("%s: gave %s, '%s'; wanted %s and '%s'\n", path, strerrorname_np(errno),
		       gpumem_error(), strerrorname_np(error), text);
		prog_failures++;
	}
}

static void bad_paths(void)
{
	char elsewhere[PATH_MAX];

	patterned_file("file", 28, 100);
	OK(mkfifo("fifo", 0600));
	OK(mkdir("folder", 0700));
	OK(symlink("nowhere", "dangling"));
	sprintf(elsewhere, "%s/elsewhere", getenv("WORK"));
	OK(open(elsewhere, O_CREAT | O_RDWR, 0600));
	open_refused("missing", O_RDWR, ENOENT, "missing: No such file");
	open_refused("dangling", O_RDWR, ENOENT, "dangling: No such file");
	open_refused("folder", O_RDWR, EISDIR, "irectory");
	open_refused("folder", O_RDONLY, EISDIR, "irectory");
	open_refused("fifo", O_RDWR, EINVAL, "no regular file");
	open_refused("fifo", O_RDONLY, EINVAL, "no regular file");
	open_refused("file", O_WRONLY, EINVAL, "flags are");
	open_refused("file", O_RDWR | O_CREAT, EINVAL, "flags are");
	open_refused("file/x", O_RDWR, ENOTDIR, "Not a directory");
	open_refused(elsewhere, O_RDWR, ENOTSUP, "not on gpumemfs");
	open_refused(elsewhere, O_RDONLY, ENOTSUP, "not on gpumemfs");
	open_refused("/dev/null", O_RDWR, EINVAL, "no regular file");
	open_refused("/proc/self/status", O_RDONLY, ENOTSUP, "not on gpumemfs");
}

static void an_empty_file(void)
{
	int fd = new_file("file");
	gpumem *file = lease("file", O_RDWR);
	unsigned long long device;
	void *host;

	EQUAL(info_of(file).size, 0);
	REFUSED(EINVAL, "empty", gpumem_map_host(file, &host, NULL));
	REFUSED(EINVAL, "empty", gpumem_map_device(file, &device, NULL));
	GOOD(gpumem_unmap_host(file));
	GOOD(gpumem_unmap_device(file));
	GOOD(gpumem_extend(file));
	pattern_write(fd, 29, 0, 3 * MIB);
	GOOD(gpumem_extend(file));
	expect_pattern(host_pointer(file, 3 * MIB), 29, 0, 3 * MIB);
	GOOD(gpumem_close(file));
	GOOD(gpumem_close(NULL));
}

CLIENT_PROG(TEST(seen_both_ways), TEST(info_says_what_it_is), TEST(old_programs_know_less),
	    TEST(several_chunks_are_one_range), TEST(small_files), TEST(holes_are_zero),
	    TEST(host_files), TEST(host_files_for_readers), TEST(readers_get_a_copy),
	    TEST(trusted_readers_get_the_file), TEST(follows_growth),
	    TEST(two_mappings_are_one_memory), TEST(bad_paths), TEST(an_empty_file))
