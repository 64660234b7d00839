/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: vulkan asan-host asan-standin */
/* backends: host standin vulkan cuda
 * gpumem_create and gpumem_publish: files that appear whole or not at all. */
#include "tests/mount/client.h"

static gpumem *create(const char *path, size_t bytes, int flags)
{
	gpumem *file = gpumem_create(path, bytes, 256, 0640, flags);

	if (!file)
		FAIL("gpumem_create(%s): %s: %s", path, strerror(errno), gpumem_error());
	return file;
}

/* A call that must fail with this errno and a text with the reason. */
static void refused(int error, const char *text, const char *path, size_t bytes, size_t alignment,
		    int flags)
{
	errno = 0;
	CHECK(!gpumem_create(path, bytes, alignment, 0640, flags));
	EQUAL(errno, error);
	if (!strstr(gpumem_error(), text))
		FAIL("'%s' says nothing of '%s'", gpumem_error(), text);
}

static struct stat status_of(const char *path)
{
	struct stat st;

	OK(stat(path, &st));
	return st;
}

static void new_file_is_whole(void)
{
	size_t bytes = 5 * MIB + 123;

	umask(0027);
	gpumem *file = create("file", bytes, 0);
	struct stat st = status_of("file");
	EQUAL(st.st_size, bytes);
	EQUAL(st.st_mode & 07777, 0640);
	CHECK((size_t)st.st_blocks * 512 >= bytes);
	struct gpumem_info info = info_of(file);
	EQUAL(info.size, bytes);
	EQUAL(info.flags, 0);
	EQUAL(info.n_chunks, 1);
	unsigned char *at = host_pointer(file, bytes);
	EQUAL((uintptr_t)at % (2 * MIB), 0);
	expect_zero(at, 0, bytes);
	pattern_fill(at, bytes, 1, 0);
	GOOD(gpumem_flush(file));
	pattern_check((int)OK(open("file", O_RDONLY)), 1, 0, bytes);
	GOOD(gpumem_close(file));
	EQUAL(names_here(), 1);
}

static void empty_file(void)
{
	gpumem *file = create("file", 0, GPUMEM_CREATE_EXCL);

	EQUAL(status_of("file").st_size, 0);
	GOOD(gpumem_close(file));
}

static void old_file_is_replaced(void)
{
	int old = patterned_file("file", 1, MIB);

	OK(fchmod(old, 0604));
	OK(symlink("file", "link"));
	gpumem *file = create("link", 3 * MIB, 0);
	struct stat st = status_of("file");
	EQUAL(st.st_size, 3 * MIB);
	EQUAL(st.st_mode & 07777, 0604);
	pattern_check(old, 1, 0, MIB);
	EQUAL(names_here(), 2);
	GOOD(gpumem_close(file));
}

static void exclusive(void)
{
	int old = patterned_file("file", 1, MIB);

	refused(EEXIST, "file exists", "file", MIB, 0, GPUMEM_CREATE_EXCL);
	OK(symlink("nowhere", "link"));
	refused(EEXIST, "link exists", "link", MIB, 0, GPUMEM_CREATE_EXCL);
	pattern_check(old, 1, 0, MIB);
	EQUAL(names_here(), 2);
}

static void pending_file_has_no_name(void)
{
	patterned_file("file", 1, MIB);
	gpumem *file = create("file", 2 * MIB, GPUMEM_CREATE_PENDING);
	EQUAL(status_of("file").st_size, MIB);
	memset(host_pointer(file, 2 * MIB), 'x', 2 * MIB);
	GOOD(gpumem_flush(file));
	GOOD(gpumem_publish(file));
	EQUAL(status_of("file").st_size, 2 * MIB);
	char first = 0;
	int fd = (int)OK(open("file", O_RDONLY));
	EQUAL(pread(fd, &first, 1, 0), 1);
	EQUAL(first, 'x');
	REFUSED(EINVAL, "has its name already", gpumem_publish(file));
	GOOD(gpumem_close(file));
	EQUAL(names_here(), 1);
}

static void pending_file_is_dropped(void)
{
	gpumem *file = create("file", MIB, GPUMEM_CREATE_PENDING);

	GOOD(gpumem_close(file));
	EQUAL(names_here(), 0);
}

static void pending_file_loses_a_race(void)
{
	gpumem *file = create("file", 2 * MIB, GPUMEM_CREATE_PENDING | GPUMEM_CREATE_EXCL);
	int other = patterned_file("file", 1, MIB);

	REFUSED(EEXIST, "file", gpumem_publish(file));
	GOOD(gpumem_close(file));
	pattern_check(other, 1, 0, MIB);
	EQUAL(names_here(), 1);
}

static void child_closes(int unused)
{
	(void)unused;
	gpumem *file = create("child", MIB, GPUMEM_CREATE_PENDING);

	_exit(fork() == 0 ? gpumem_close(file) : pause());
}

/* The child of a fork neither names nor removes its parent's file, and a killed process leaves
 * nothing behind. */
static void pending_file_and_processes(void)
{
	gpumem *file = create("file", MIB, GPUMEM_CREATE_PENDING);
	int status;
	pid_t pid = OK(fork());

	if (pid == 0)
		_exit(gpumem_publish(file) == 0 || errno != EINVAL || gpumem_close(file) != 0);
	EQUAL(waitpid(pid, &status, 0), pid);
	EQUAL(status, 0);
	GOOD(gpumem_publish(file));
	GOOD(gpumem_close(file));
	EQUAL(names_here(), 1);
	pid = spawn(child_closes, 0);
	usleep(100000);
	OK(kill(pid, SIGKILL));
	EQUAL(waitpid(pid, &status, 0), pid);
	EQUAL(names_here(), 1);
}

static void whole_or_not_at_all(void)
{
	int old = patterned_file("file", 1, MIB);

	refused(ENOSPC, "no memory for", "file", (size_t)1 << 50, 0, 0);
	refused(EFBIG, "more than a file can have", "file", SIZE_MAX, 0, 0);
	pattern_check(old, 1, 0, MIB);
	EQUAL(names_here(), 1);
}

static void wrong_arguments(void)
{
	OK(mkdir("folder", 0700));
	OK(mkfifo("fifo", 0600));
	refused(EINVAL, "alignment 3", "file", MIB, 3, 0);
	refused(EINVAL, "alignment 4194304", "file", MIB, 4 * MIB, 0);
	refused(EINVAL, "flags", "file", MIB, 0, 4);
	refused(EISDIR, "folder", "folder", MIB, 0, 0);
	refused(EINVAL, "fifo", "fifo", MIB, 0, 0);
	refused(ENOENT, "nowhere", "nowhere/file", MIB, 0, 0);
	refused(ENOTSUP, "not on gpumemfs", "/tmp/gpumem-create-test", MIB, 0, 0);
	CHECK(access("/tmp/gpumem-create-test", F_OK) != 0);
	EQUAL(names_here(), 2);
}

static void nothing_leaks(void)
{
	int before = open_descriptors();

	for (int i = 0; i < 20; i++) {
		gpumem *file = create("file", MIB, i % 2 ? GPUMEM_CREATE_PENDING : 0);
		if (i % 4 == 1)
			GOOD(gpumem_publish(file));
		GOOD(gpumem_close(file));
	}
	/* The connection to the daemon stays. */
	CHECK(open_descriptors() <= before + 1);
}

CLIENT_PROG(TEST(new_file_is_whole), TEST(empty_file), TEST(old_file_is_replaced), TEST(exclusive),
	    TEST(pending_file_has_no_name), TEST(pending_file_is_dropped),
	    TEST(pending_file_loses_a_race), TEST(pending_file_and_processes),
	    TEST(whole_or_not_at_all), TEST(wrong_arguments), TEST(nothing_leaks))
