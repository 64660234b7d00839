/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors
 * check: standin vulkan
 * mount: host_size=1G */
/* Thousands of random operations on the mount and on a plain directory: results, errnos, names,
 * types, modes, link counts, attributes and bytes must be equal. The first difference ends the
 * test. */
#include "tests/mount/prog.h"

#include <dirent.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/xattr.h>

#define OPERATIONS  15000
#define CHECK_EVERY 1000
#define HANDLES	    6
#define LARGEST	    (5 * MIB / 2)

enum { MOUNT, PLAIN, SIDES };

static uint64_t state;
static int roots[SIDES];
static int handles[HANDLES][SIDES];
static char story[256]; /* the current operation */
static long step;

static uint64_t below(uint64_t limit)
{
	return random_next(&state) % limit;
}

/* Compares the results of a call on both sides, including the values of successful calls. */
static bool agree(const long long value[SIDES], const int error[SIDES])
{
	if (value[MOUNT] != value[PLAIN] || (value[MOUNT] < 0 && error[MOUNT] != error[PLAIN]))
		FAIL("operation %ld, %s: %lld %s on the mount, %lld %s on the plain directory",
		     step, story, value[MOUNT],
		     value[MOUNT] < 0 ? strerrorname_np(error[MOUNT]) : "", value[PLAIN],
		     value[PLAIN] < 0 ? strerrorname_np(error[PLAIN]) : "");
	return value[MOUNT] >= 0;
}

/* Makes a call on both sides; root and handle are those of the side. */
#define BOTH(call)                                                                                 \
	({                                                                                         \
		long long value_[SIDES];                                                           \
		int error_[SIDES];                                                                 \
		for (int side = 0; side < SIDES; side++) {                                         \
			int root = roots[side];                                                    \
			(void)root;                                                                \
			errno = 0;                                                                 \
			value_[side] = (call);                                                     \
			error_[side] = errno;                                                      \
		}                                                                                  \
		agree(value_, error_);                                                             \
	})

#define TELL(...) snprintf(story, sizeof(story), __VA_ARGS__)

/* A path that may or may not exist: up to three of six names. */
static const char *random_path(void)
{
	static char paths[4][16];
	static unsigned next;
	char *path = paths[next++ % 4], *at = path;

	for (int depth = below(6) / 2; depth >= 0; depth--) {
		*at++ = 'a' + below(6);
		*at++ = '/';
	}
	at[-1] = '\0';
	return path;
}

static off_t random_offset(void)
{
	off_t offset = below(below(4) ? 200 * KIB : LARGEST);

	return below(2) ? offset : offset & ~4095L;
}

static size_t random_size(void)
{
	return 1 + below(below(4) ? 5000 : 300 * KIB);
}

/* A slot with an open file, or -1. */
static int random_handle(void)
{
	int slot = below(HANDLES);

	return handles[slot][MOUNT] < 0 ? -1 : slot;
}

static void op_open(void)
{
	static const int flags[] = {O_RDWR,
				    O_RDWR | O_CREAT,
				    O_RDWR | O_CREAT,
				    O_RDWR | O_CREAT | O_EXCL,
				    O_RDWR | O_TRUNC,
				    O_RDWR | O_CREAT | O_APPEND,
				    O_WRONLY | O_CREAT};
	int slot = below(HANDLES), flag = flags[below(7)], opened[SIDES];
	const char *path = random_path();
	mode_t mode = 0600 | below(0200);

	TELL("open %s flags %o mode %o in slot %d", path, flag, mode, slot);
	if (!BOTH(-((opened[side] = openat(root, path, flag | O_NONBLOCK, mode)) < 0)))
		return;
	for (int side = 0; side < SIDES; side++) {
		if (handles[slot][side] >= 0)
			close(handles[slot][side]);
		handles[slot][side] = opened[side];
	}
}

static void op_tmpfile(void)
{
	int slot = below(HANDLES), opened[SIDES];

	TELL("tmpfile in slot %d", slot);
	if (!BOTH(-((opened[side] = openat(root, ".", O_TMPFILE | O_RDWR, 0600)) < 0)))
		return;
	for (int side = 0; side < SIDES; side++) {
		if (handles[slot][side] >= 0)
			close(handles[slot][side]);
		handles[slot][side] = opened[side];
	}
}

static void op_write(void)
{
	static char bytes[300 * KIB + 1];
	int slot = random_handle();
	off_t offset = random_offset();
	size_t size = random_size();

	if (slot < 0)
		return;
	TELL("pwrite slot %d at %lld, %zu bytes", slot, (long long)offset, size);
	pattern_fill(bytes, size, state, 0);
	BOTH(pwrite(handles[slot][side], bytes, size, offset));
}

static void op_read(void)
{
	static char bytes[SIDES][300 * KIB + 1];
	int slot = random_handle();
	off_t offset = random_offset();
	size_t size = random_size();

	if (slot < 0)
		return;
	TELL("pread slot %d at %lld, %zu bytes", slot, (long long)offset, size);
	memset(bytes, 0, sizeof(bytes));
	BOTH(pread(handles[slot][side], bytes[side], size, offset));
	for (size_t i = 0; i < size; i++)
		if (bytes[MOUNT][i] != bytes[PLAIN][i])
			FAIL("operation %ld, %s: differs at %zu", step, story, i);
}

static void op_truncate(void)
{
	int slot = random_handle();
	off_t size = below(3) ? random_offset() : 0;

	if (slot < 0)
		return;
	TELL("ftruncate slot %d to %lld", slot, (long long)size);
	BOTH(ftruncate(handles[slot][side], size));
}

/* A plain directory on tmpfs has no ZERO_RANGE: write zeros there. */
static int zero_range(int fd, bool plain, off_t offset, size_t size)
{
	static const char zeros[300 * KIB + 1];

	if (!plain)
		return fallocate(fd, FALLOC_FL_ZERO_RANGE, offset, size);
	int flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, flags & ~O_APPEND);
	ssize_t written = pwrite(fd, zeros, size, offset);
	fcntl(fd, F_SETFL, flags);
	return written < 0 ? -1 : 0;
}

static void op_allocate(void)
{
	int slot = random_handle();
	off_t offset = random_offset();
	size_t size = random_size();
	int keep = below(2) ? FALLOC_FL_KEEP_SIZE : 0;

	if (slot < 0)
		return;
	switch (below(4)) {
	case 0:
		TELL("fallocate slot %d at %lld, %zu keep %d", slot, (long long)offset, size, keep);
		BOTH(fallocate(handles[slot][side], keep, offset, size));
		break;
	case 1:
		TELL("zero slot %d at %lld, %zu", slot, (long long)offset, size);
		BOTH(zero_range(handles[slot][side], side == PLAIN || !prog_on_daemon(), offset,
				size));
		break;
	default:
		TELL("punch slot %d at %lld, %zu", slot, (long long)offset, size);
		BOTH(fallocate(handles[slot][side], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       offset, size));
	}
}

static void op_copy(void)
{
	int from = random_handle(), to = random_handle();
	off_t offset = random_offset(), to_offset = random_offset();
	size_t size = random_size();
	struct stat st;

	if (from < 0 || to < 0)
		return;
	TELL("copy slot %d at %lld to slot %d at %lld, %zu", from, (long long)offset, to,
	     (long long)to_offset, size);
	/* Stay within the file: short copies may differ on the two sides. */
	OK(fstat(handles[from][PLAIN], &st));
	if (offset + (off_t)size > st.st_size)
		return;
	BOTH(({
		off_t a = offset, b = to_offset;
		copy_file_range(handles[from][side], &a, handles[to][side], &b, size, 0);
	}));
}

static void op_make(void)
{
	const char *path = random_path(), *target = random_path();

	switch (below(6)) {
	case 0:
		TELL("symlink %s to %s", path, target);
		BOTH(symlinkat(target, root, path));
		break;
	case 1:
		TELL("mkfifo %s", path);
		BOTH(mkfifoat(root, path, 0600));
		break;
	case 2:
		TELL("link %s to %s", target, path);
		BOTH(linkat(root, target, root, path, 0));
		break;
	default:
		TELL("mkdir %s", path);
		BOTH(mkdirat(root, path, 0755));
	}
}

static void op_remove(void)
{
	const char *path = random_path();
	int flag = below(3) ? 0 : AT_REMOVEDIR;

	TELL("%s %s", flag ? "rmdir" : "unlink", path);
	BOTH(unlinkat(root, path, flag));
}

static void op_rename(void)
{
	static const unsigned flags[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
	const char *from = random_path(), *to = random_path();
	unsigned flag = flags[below(5)];

	TELL("rename %s to %s, flags %u", from, to, flag);
	BOTH(renameat2(root, from, root, to, flag));
}

static void op_chmod(void)
{
	const char *path = random_path();
	mode_t mode = 0600 | below(01000);

	TELL("chmod %s %o", path, mode);
	BOTH(fchmodat(root, path, mode, 0));
}

static void op_xattr(void)
{
	char name[] = "user.a", value[300];
	int slot = random_handle(), flag = below(3); /* 1 CREATE, 2 REPLACE */
	size_t size = below(300);

	if (slot < 0)
		return;
	name[5] += below(4);
	memset(value, 'v', sizeof(value));
	TELL("xattr %s on slot %d, %zu bytes, flag %d", name, slot, size, flag);
	if (below(4))
		BOTH(fsetxattr(handles[slot][side], name, value, size, flag));
	else
		BOTH(fremovexattr(handles[slot][side], name));
}

static void op_seek(void)
{
	int slot = random_handle();
	off_t offset = random_offset();

	if (slot < 0)
		return;
	TELL("seek slot %d to %lld", slot, (long long)offset);
	BOTH(-(lseek(handles[slot][side], offset, SEEK_HOLE) < 0));
	BOTH(lseek(handles[slot][side], 0, SEEK_END));
}

/* --- Comparing the trees ------------------------------------------------------------------- */

static int not_dots(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
}

static void compare_bytes(int a, int b, const char *path)
{
	static char bytes[SIDES][LARGEST + 400 * KIB];
	ssize_t size = OK(pread(a, bytes[MOUNT], sizeof(bytes[0]), 0));

	EQUAL(pread(b, bytes[PLAIN], sizeof(bytes[0]), 0), size);
	for (ssize_t i = 0; i < size; i++)
		if (bytes[MOUNT][i] != bytes[PLAIN][i])
			FAIL("after operation %ld, %s: %s differs at %zd of %zd", step, story, path,
			     i, size);
}

static void compare_xattrs(int a, int b, const char *path)
{
	for (char name[] = "user.a"; name[5] < 'e'; name[5]++) {
		char value[SIDES][300] = {"", ""};
		ssize_t size = fgetxattr(a, name, value[MOUNT], 300);

		if (size != fgetxattr(b, name, value[PLAIN], 300) ||
		    memcmp(value[MOUNT], value[PLAIN], 300))
			FAIL("after operation %ld: %s of %s differs", step, name, path);
	}
}

static void compare_file(int a, int b, const char *path)
{
	compare_bytes(a, b, path);
	compare_xattrs(a, b, path);
	close(a);
	close(b);
}

static void compare_entry(int a, int b, const char *name, const char *path);

static void compare_directories(int a, int b, const char *path)
{
	struct dirent **names[SIDES];
	int n = OK(scandirat(a, ".", &names[MOUNT], not_dots, alphasort));
	int m = OK(scandirat(b, ".", &names[PLAIN], not_dots, alphasort));

	for (int i = 0; i < n && i < m; i++) {
		char below_path[64];

		snprintf(below_path, sizeof(below_path), "%.40s/%.8s", path, names[0][i]->d_name);
		if (strcmp(names[MOUNT][i]->d_name, names[PLAIN][i]->d_name))
			FAIL("after operation %ld: %s and %s in %s", step, names[0][i]->d_name,
			     names[1][i]->d_name, path);
		compare_entry(a, b, names[MOUNT][i]->d_name, below_path);
		free(names[MOUNT][i]);
		free(names[PLAIN][i]);
	}
	if (n != m)
		FAIL("after operation %ld: %d and %d entries in %s", step, n, m, path);
	free(names[MOUNT]);
	free(names[PLAIN]);
	close(a);
	close(b);
}

static void compare_entry(int a, int b, const char *name, const char *path)
{
	struct stat st[SIDES];
	char target[SIDES][16] = {"", ""};

	OK(fstatat(a, name, &st[MOUNT], AT_SYMLINK_NOFOLLOW));
	OK(fstatat(b, name, &st[PLAIN], AT_SYMLINK_NOFOLLOW));
	if (st[MOUNT].st_mode != st[PLAIN].st_mode)
		FAIL("after operation %ld: %s has modes %o and %o", step, path, st[MOUNT].st_mode,
		     st[PLAIN].st_mode);
	if (S_ISDIR(st[MOUNT].st_mode)) {
		compare_directories(OK(openat(a, name, O_RDONLY)), OK(openat(b, name, O_RDONLY)),
				    path);
		return;
	}
	if (st[MOUNT].st_nlink != st[PLAIN].st_nlink || st[MOUNT].st_size != st[PLAIN].st_size)
		FAIL("after operation %ld: %s has %ld and %ld links, %lld and %lld bytes", step,
		     path, (long)st[MOUNT].st_nlink, (long)st[PLAIN].st_nlink,
		     (long long)st[MOUNT].st_size, (long long)st[PLAIN].st_size);
	if (S_ISREG(st[MOUNT].st_mode))
		compare_file(OK(openat(a, name, O_RDONLY)), OK(openat(b, name, O_RDONLY)), path);
	if (S_ISLNK(st[MOUNT].st_mode)) {
		EQUAL(readlinkat(a, name, target[MOUNT], 16),
		      readlinkat(b, name, target[PLAIN], 16));
		CHECK(!memcmp(target[MOUNT], target[PLAIN], 16));
	}
}

/* Files without a name are compared too. */
static void compare_handle(int slot)
{
	struct stat st;

	if (handles[slot][PLAIN] < 0 ||
	    (fcntl(handles[slot][PLAIN], F_GETFL) & O_ACCMODE) != O_RDWR)
		return;
	OK(fstat(handles[slot][PLAIN], &st));
	if (S_ISREG(st.st_mode))
		compare_bytes(handles[slot][MOUNT], handles[slot][PLAIN], "an open file");
}

static void compare_all(void)
{
	compare_directories(OK(openat(roots[MOUNT], ".", O_RDONLY)),
			    OK(openat(roots[PLAIN], ".", O_RDONLY)), "");
	for (int slot = 0; slot < HANDLES; slot++)
		compare_handle(slot);
}

static void random_operations(void)
{
	static void (*const operations[])(void) = {
	    op_open,	 op_open,     op_open,	op_write, op_write, op_write,  op_write,  op_read,
	    op_truncate, op_allocate, op_copy,	op_copy,  op_make,  op_make,   op_remove, op_remove,
	    op_rename,	 op_rename,   op_chmod, op_xattr, op_seek,  op_tmpfile};
	uint64_t seed = seed_from_environment(1);
	char path[PATH_MAX];

	state = seed;
	printf("repeat with GPUMEM_SEED=%llu\n", (unsigned long long)seed);
	memset(handles, -1, sizeof(handles));
	snprintf(path, sizeof(path), "%s/plain", getenv("WORK"));
	OK(mkdir(path, 0755));
	roots[MOUNT] = OK(open(".", O_RDONLY | O_DIRECTORY));
	roots[PLAIN] = OK(open(path, O_RDONLY | O_DIRECTORY));
	for (step = 1; step <= OPERATIONS; step++) {
		operations[below(sizeof(operations) / sizeof(operations[0]))]();
		if (step % CHECK_EVERY == 0)
			compare_all();
	}
}

PROG(TEST(random_operations))
