/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host */
/* mount: suid
 * needs: daemon
 * timeout: 600
 * Calls that clear the set-user-ID and set-group-ID bits of a file, and calls that keep the bits:
 * every way of changing the file, for each kind of user, compared with tmpfs. A later execve uses
 * the new bits. */
#include "tests/mount/uring.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/sendfile.h>
#include <sys/vfs.h>

#define TMPFS_MAGIC 0x01021994
#define BYTES	    20000

enum { OWNER = 1234, STRANGER = 4321, TREES = 3 };

static const mode_t modes[] = {06777, 04777, 02777, 06767, 02767, 06666, 0777};

/* --- Users ----------------------------------------------------------------------------------- */

static void become(uid_t uid, gid_t gid, gid_t other)
{
	OK(setgroups(1, &other));
	OK(setresgid(gid, gid, gid));
	OK(setresuid(uid, uid, uid));
}

static void be_owner(void)
{
	become(OWNER, OWNER, OWNER);
}

static void be_stranger(void)
{
	become(STRANGER, STRANGER, STRANGER);
}

static void be_member(void)
{
	become(STRANGER, STRANGER, OWNER);
}

static void be_member_first(void)
{
	become(STRANGER, OWNER, STRANGER);
}

static void be_root(void)
{
}

static void be_root_without_fsetid(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	OK(setgroups(0, NULL));
	OK(syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1U << CAP_FSETID);
	OK(syscall(SYS_capset, &header, data));
}

static const struct {
	const char *name;
	void (*be)(void);
} callers[] = {
    {"the owner", be_owner},
    {"a stranger", be_stranger},
    {"a member of the group", be_member},
    {"one whose first group it is", be_member_first},
    {"root", be_root},
    {"root without CAP_FSETID", be_root_without_fsetid},
};

/* --- The ways to change a file --------------------------------------------------------------- */

static void do_write(const char *path, int old)
{
	int fd = OK(open(path, O_WRONLY));

	(void)old;
	EQUAL(OK(pwrite(fd, "xy", 2, 7)), 2);
}

static void do_append(const char *path, int old)
{
	int fd = OK(open(path, O_WRONLY | O_APPEND));

	(void)old;
	EQUAL(OK(write(fd, "xy", 2)), 2);
}

/* Writes through a handle that was opened before the file had the bits. */
static void do_old_write(const char *path, int old)
{
	(void)path;
	EQUAL(OK(pwrite(old, "xy", 2, 7)), 2);
}

static void do_truncate(const char *path, int old)
{
	(void)old;
	OK(truncate(path, 100));
}

static void do_old_truncate(const char *path, int old)
{
	(void)path;
	OK(ftruncate(old, 2 * BYTES));
}

static void do_open_truncate(const char *path, int old)
{
	(void)old;
	OK(open(path, O_WRONLY | O_TRUNC));
}

static void do_allocate(const char *path, int old)
{
	(void)old;
	OK(fallocate(OK(open(path, O_WRONLY)), 0, 3 * BYTES, 100));
}

static void do_old_punch(const char *path, int old)
{
	(void)path;
	OK(fallocate(old, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096));
}

static void do_copy(const char *path, int old)
{
	off_t from = 0, to = 8192;
	int fd = OK(open(path, O_RDWR));

	(void)old;
	EQUAL(OK(copy_file_range(fd, &from, fd, &to, 4096, 0)), 4096);
}

static void do_old_copy(const char *path, int old)
{
	off_t from = 0, to = 8192;

	(void)path;
	EQUAL(OK(copy_file_range(old, &from, old, &to, 4096, 0)), 4096);
}

static void do_sendfile(const char *path, int old)
{
	int from = OK(memfd_create("from", MFD_CLOEXEC)), fd = OK(open(path, O_WRONLY));

	(void)old;
	OK(ftruncate(from, 4096));
	EQUAL(OK(sendfile(fd, from, NULL, 4096)), 4096);
}

static void write_by_uring(int fd)
{
	struct uring uring;

	if (uring_open(&uring))
		EQUAL(uring_write(&uring, fd, "xy", 2, 7), 2);
}

static void do_uring(const char *path, int old)
{
	(void)old;
	write_by_uring(OK(open(path, O_WRONLY)));
}

static void do_old_uring(const char *path, int old)
{
	(void)path;
	write_by_uring(old);
}

static void do_map(const char *path, int old)
{
	int fd = OK(open(path, O_RDWR));
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	(void)old;
	CHECK(memory != MAP_FAILED);
	memory[5000] = 'x';
	OK(msync(memory, 8192, MS_SYNC));
	OK(munmap(memory, 8192));
}

/* A user without the right gets an error, and the bits stay. */
static void do_chgrp(const char *path, int old)
{
	(void)old;
	if (chown(path, (uid_t)-1, getegid()) && errno != EPERM)
		FAIL("chown: %s", strerror(errno));
}

static void do_chown_to_nobody(const char *path, int old)
{
	(void)old;
	if (chown(path, (uid_t)-1, (gid_t)-1) && errno != EPERM)
		FAIL("chown: %s", strerror(errno));
}

static void do_read(const char *path, int old)
{
	char bytes[10];
	int fd = OK(open(path, O_RDWR));

	EQUAL(OK(pread(fd, bytes, 10, 0)), 10);
	EQUAL(OK(pread(old, bytes, 10, 0)), 10);
	OK(fsync(fd));
}

static const struct {
	const char *name;
	void (*run)(const char *path, int old);
} ways[] = {
    {"write", do_write},
    {"append", do_append},
    {"write by an old handle", do_old_write},
    {"truncate", do_truncate},
    {"truncate by an old handle", do_old_truncate},
    {"open and truncate", do_open_truncate},
    {"fallocate", do_allocate},
    {"punch a hole by an old handle", do_old_punch},
    {"copy_file_range", do_copy},
    {"copy_file_range by an old handle", do_old_copy},
    {"sendfile", do_sendfile},
    {"write by io_uring", do_uring},
    {"write by io_uring and an old handle", do_old_uring},
    {"write by mapping", do_map},
    {"change of the group", do_chgrp},
    {"change of no owner", do_chown_to_nobody},
    {"read", do_read},
};

#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* --- The table ------------------------------------------------------------------------------- */

static const char *path_of(const char *tree, size_t way)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/file%zu", tree, way);
	return path;
}

static void change_all(void (*be)(void), const char *tree, const int *old)
{
	pid_t pid = OK(fork());

	if (pid == 0) {
		be();
		for (size_t way = 0; way < WAYS; way++)
			ways[way].run(path_of(tree, way), old[way]);
		_exit(0);
	}
	join_all(1);
}

/* A handle to a new file, opened before the file gets its mode. */
static int old_handle(const char *path)
{
	int fd = new_file(path);

	pattern_write(fd, 1, 0, BYTES);
	return fd;
}

/* Records the modes after each way of changing a file. */
static void modes_after(const char *tree, mode_t mode, void (*be)(void), mode_t *after)
{
	int old[WAYS];

	for (size_t way = 0; way < WAYS; way++) {
		const char *path = path_of(tree, way);

		old[way] = old_handle(path);
		OK(chown(path, OWNER, OWNER));
		OK(chmod(path, mode));
		EQUAL(stat_of(path).st_mode & 07777, mode);
	}
	change_all(be, tree, old);
	for (size_t way = 0; way < WAYS; way++) {
		const char *path = path_of(tree, way);
		struct stat st;

		after[way] = stat_of(path).st_mode & 07777;
		OK(fstat(old[way], &st));
		EQUAL(st.st_mode & 07777, after[way]);
		OK(close(old[way]));
		OK(unlink(path));
	}
}

static void compare(char *const *trees, mode_t mode, size_t caller)
{
	mode_t after[TREES][WAYS];

	for (int tree = 0; tree < TREES; tree++)
		modes_after(trees[tree], mode, callers[caller].be, after[tree]);
	for (int tree = 1; tree < TREES; tree++)
		for (size_t way = 0; way < WAYS; way++)
			if (after[tree][way] != after[0][way]) {
				printf("%s: %s by %s of mode %o: %o, and on tmpfs %o\n",
				       trees[tree], ways[way].name, callers[caller].name, mode,
				       after[tree][way], after[0][way]);
				prog_failures++;
			}
}

/* Whether the kernel leaves the bits to the daemon; older kernels keep some bits. */
static bool has_killpriv(void)
{
	char path[PATH_MAX], text[16384] = "";

	snprintf(path, sizeof(path), "%s/.gpumem/params", getenv("MNT"));
	OK(read(OK(open(path, O_RDONLY)), text, sizeof(text) - 1));
	return strstr(text, "\nkillpriv on");
}

static void as_on_tmpfs(void)
{
	char reference[] = "/dev/shm/gpumemfs-set-id.XXXXXX", host[PATH_MAX], here[] = ".";
	char *trees[TREES] = {reference, here, host};
	struct statfs fs;

	if (geteuid() != 0)
		SKIP("needs root");
	if (!has_killpriv())
		SKIP("killpriv is off");
	if (statfs("/dev/shm", &fs) || fs.f_type != TMPFS_MAGIC || !mkdtemp(reference))
		SKIP("/dev/shm is no tmpfs");
	snprintf(host, sizeof(host), "%s/%s", getenv("HOSTDIR"), getenv("TEST"));
	OK(mkdir(host, 0755));
	OK(chmod(reference, 0755));
	for (size_t mode = 0; mode < sizeof(modes) / sizeof(modes[0]); mode++)
		for (size_t caller = 0; caller < sizeof(callers) / sizeof(callers[0]); caller++)
			compare(trees, modes[mode], caller);
	OK(rmdir(reference));
	OK(rmdir(host));
}

/* chown(2) with the ids -1, in every form, on a file that other users may write: the owner's call
 * clears the bits, and a stranger's call is refused. */
static void change_to_nobody(const char *path)
{
	const uid_t nobody = (uid_t)-1;
	int fd = OK(open(path, O_RDONLY));

	FAILS(EPERM, chown(path, nobody, nobody));
	FAILS(EPERM, lchown(path, nobody, nobody));
	FAILS(EPERM, fchown(fd, nobody, nobody));
	FAILS(EPERM, fchownat(fd, "", nobody, nobody, AT_EMPTY_PATH));
}

static void strangers_change_to_nobody(const char *path)
{
	pid_t pid = OK(fork());

	if (pid == 0) {
		be_stranger();
		change_to_nobody(path);
		_exit(prog_failures ? 1 : 0);
	}
	join_all(1);
}

static void chown_to_nobody(const char *path)
{
	int writer = new_file(path);

	pattern_write(writer, 1, 0, BYTES);
	OK(chmod(path, 06755));
	strangers_change_to_nobody(path);
	EQUAL(stat_of(path).st_mode & 07777, 06755);
	OK(chown(path, (uid_t)-1, (gid_t)-1));
	EQUAL(stat_of(path).st_mode & 07777, 0755);
	OK(close(writer));
	OK(unlink(path));
}

static void refused_as_on_tmpfs(void)
{
	char path[PATH_MAX];

	if (geteuid() != 0)
		SKIP("needs root");
	if (!has_killpriv())
		SKIP("killpriv is off");
	chown_to_nobody("/dev/shm/gpumemfs-set-id-chown");
	chown_to_nobody("file");
	snprintf(path, sizeof(path), "%s/set-id-chown", getenv("HOSTDIR"));
	chown_to_nobody(path);
}

/* --- Execution ------------------------------------------------------------------------------- */

static void copy_program(const char *from, const char *to)
{
	static char bytes[1 << 20];
	int in = OK(open(from, O_RDONLY)), out = new_file(to);
	ssize_t got;

	while ((got = OK(read(in, bytes, sizeof(bytes)))))
		EQUAL(OK(write(out, bytes, (size_t)got)), got);
	OK(close(in));
	OK(close(out));
}

/* The user as whom a stranger's program runs, after a write to the program or without. */
static unsigned user_of(const char *program, bool writes)
{
	char text[32] = "";
	int ends[2];

	OK(pipe2(ends, O_CLOEXEC));
	pid_t pid = OK(fork());

	if (pid == 0) {
		be_stranger();
		int fd = writes ? OK(open(program, O_RDWR)) : -1;
		char byte;

		if (writes) {
			EQUAL(OK(pread(fd, &byte, 1, 0)), 1);
			EQUAL(OK(pwrite(fd, &byte, 1, 0)), 1);
			OK(close(fd));
		}
		OK(dup2(ends[1], STDOUT_FILENO));
		execl(program, "id", "-u", NULL);
		_exit(1);
	}
	OK(close(ends[1]));
	OK(read(ends[0], text, sizeof(text) - 1));
	OK(close(ends[0]));
	join_all(1);
	return (unsigned)strtoul(text, NULL, 10);
}

static void runs_as(const char *program)
{
	copy_program("/usr/bin/id", program);
	OK(chmod(program, 04757));
	if (user_of(program, false) != 0)
		SKIP("set-user-ID bits mean nothing here");
	/* No call asks for the mode between the write and the execution. */
	EQUAL(user_of(program, true), STRANGER);
	EQUAL(user_of(program, false), STRANGER);
	OK(unlink(program));
}

static void not_executed_by_the_old_mode(void)
{
	char host[PATH_MAX];

	if (geteuid() != 0)
		SKIP("needs root");
	runs_as("id");
	snprintf(host, sizeof(host), "%s/id", getenv("HOSTDIR"));
	runs_as(host);
}

PROG(TEST(as_on_tmpfs), TEST(refused_as_on_tmpfs), TEST(not_executed_by_the_old_mode))
