/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Opening below a directory, by openat2 and on a kernel without openat2. */
#include "client/core/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/unit.h"

static char folder[] = "/tmp/beneath_XXXXXX";
static int base = -1;

static void file_make(const char *name)
{
	int fd = openat(base, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void tree_make(void)
{
	ck_assert_ptr_nonnull(mkdtemp(folder));
	base = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(base, 0);
	ck_assert_int_eq(mkdirat(base, "a", 0700), 0);
	ck_assert_int_eq(mkdirat(base, "a/b", 0700), 0);
	file_make("a/b/file");
	ck_assert_int_eq(symlinkat("file", base, "a/b/link"), 0);
	ck_assert_int_eq(symlinkat("gone", base, "a/b/dangling"), 0);
	ck_assert_int_eq(symlinkat("b", base, "a/via"), 0);
	ck_assert_int_eq(symlinkat("/etc", base, "a/etc"), 0);
	ck_assert_int_eq(symlinkat("..", base, "a/up"), 0);
	ck_assert_int_eq(mkfifoat(base, "a/fifo", 0600), 0);
}

static void tree_remove(void)
{
	static const char *const files[] = {"a/b/file", "a/b/link", "a/b/dangling", "a/via",
					    "a/etc",	"a/up",	    "a/fifo",	    "a/b/new"};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		unlinkat(base, files[i], 0);
	unlinkat(base, "a/b", AT_REMOVEDIR);
	unlinkat(base, "a", AT_REMOVEDIR);
	close(base);
	rmdir(folder);
}

/* The process has no openat2(2) from now on. */
static void openat2_remove(void)
{
	struct sock_filter lines[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(lines) / sizeof(lines[0]), lines};

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
	ck_assert_int_eq((int)syscall(SYS_openat2, -1, "", NULL, 0), -1);
	ck_assert_int_eq(errno, ENOSYS);
}

static const struct {
	const char *path;
	int flags;
	int error, other_error; /* both are refusals */
} cases[] = {
    {"a/b/file", O_RDONLY, 0, 0},
    {"a//b///file", O_RDONLY, 0, 0},
    {"./a/./b/file", O_RDWR, 0, 0},
    {"", O_PATH | O_DIRECTORY, 0, 0},
    {"a/b", O_PATH | O_DIRECTORY, 0, 0},
    {"a/b", O_RDONLY | O_DIRECTORY, 0, 0},
    {"a/b/new", O_RDWR | O_CREAT | O_EXCL, 0, 0},
    {"a/b/link", O_PATH | O_NOFOLLOW, 0, 0},
    {"a/fifo", O_RDONLY, 0, 0}, /* no writer */
    {"a/b/link", O_RDONLY, -ELOOP, -ELOOP},
    {"a/b/link", O_PATH, -ELOOP, -ELOOP},
    {"a/b/link", O_RDWR | O_CREAT, -ELOOP, -ELOOP},
    {"a/b/dangling", O_RDWR | O_CREAT, -ELOOP, -ELOOP},
    {"a/b/link", O_RDWR | O_CREAT | O_EXCL, -EEXIST, -ELOOP},
    {"a/via", O_RDONLY | O_DIRECTORY, -ELOOP, -ENOTDIR},
    {"a/via", O_PATH | O_DIRECTORY, -ELOOP, -ENOTDIR},
    {"a/via/file", O_RDONLY, -ELOOP, -ENOTDIR},
    {"a/etc/passwd", O_RDONLY, -ELOOP, -ENOTDIR},
    {"a/up/a/b/file", O_RDONLY, -ELOOP, -ENOTDIR},
    {"a/../../etc/passwd", O_RDONLY, -EXDEV, -EXDEV},
    {"..", O_PATH | O_DIRECTORY, -EXDEV, -EXDEV},
    {"/etc/passwd", O_RDONLY, -EXDEV, -EXDEV},
    {"a/b/file/x", O_RDONLY, -ENOTDIR, -ENOTDIR},
    {"none", O_RDONLY, -ENOENT, -ENOENT},
    {"none/file", O_RDWR | O_CREAT, -ENOENT, -ENOENT},
};

static void case_check(size_t i)
{
	int fd = beneath_open(base, cases[i].path, cases[i].flags, 0600);

	if (cases[i].error == 0)
		ck_assert_msg(fd >= 0, "%s: %s", cases[i].path, strerror(-fd));
	else
		ck_assert_msg(fd == cases[i].error || fd == cases[i].other_error, "%s: %d",
			      cases[i].path, fd);
	if (fd >= 0) {
		ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
		close(fd);
	}
}

START_TEST(opens_and_refuses)
{
	case_check((size_t)_i);
}
END_TEST

START_TEST(opens_and_refuses_by_steps)
{
	openat2_remove();
	case_check((size_t)_i);
}
END_TEST

/* By an O_PATH descriptor, as of files that cannot be opened otherwise. */
START_TEST(sets_metadata_by_descriptor)
{
	static const char *const names[] = {"a/fifo", "a/b", "a/b/file"};
	const struct timespec times[2] = {{1, 2}, {981173106, 789}};
	struct stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int fd = beneath_open(base, names[i], O_PATH | O_NOFOLLOW, 0);

		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(beneath_chown(fd, geteuid(), getegid()), 0);
		ck_assert_int_eq(beneath_chmod(fd, 0710), 0);
		ck_assert_int_eq(beneath_set_times(fd, times), 0);
		ck_assert_int_eq(fstatat(base, names[i], &st, AT_SYMLINK_NOFOLLOW), 0);
		ck_assert_uint_eq(st.st_mode & 07777, 0710);
		ck_assert_int_eq(st.st_mtim.tv_sec, 981173106);
		ck_assert_int_eq(st.st_mtim.tv_nsec, 789);
		close(fd);
	}
}
END_TEST

/* A link's own times change, and not those of the file that the link leads to. */
START_TEST(changes_a_link_itself)
{
	const struct timespec times[2] = {{1, 0}, {1, 0}};
	int fd = beneath_open(base, "a/b/link", O_PATH | O_NOFOLLOW, 0);
	struct stat st;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(beneath_set_times(fd, times), 0);
	ck_assert_int_eq(beneath_chown(fd, geteuid(), getegid()), 0);
	ck_assert_int_ne(beneath_chmod(fd, 0777), 0);
	close(fd);
	ck_assert_int_eq(fstatat(base, "a/b/link", &st, AT_SYMLINK_NOFOLLOW), 0);
	ck_assert_int_eq(st.st_mtim.tv_sec, 1);
	ck_assert_int_eq(fstatat(base, "a/b/file", &st, 0), 0);
	ck_assert_int_ne(st.st_mtim.tv_sec, 1);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(trusts_links_as_the_kernel_does)
{
	struct stat others = {.st_uid = geteuid() + 1}, own = {.st_uid = geteuid()};
	int shared = beneath_open(base, "a", O_RDONLY | O_DIRECTORY, 0);

	ck_assert_int_ge(shared, 0);
	ck_assert(beneath_owner_is_trusted(shared, &others));
	ck_assert_int_eq(fchmod(shared, 01777), 0);
	ck_assert(!beneath_owner_is_trusted(shared, &others));
	ck_assert(beneath_owner_is_trusted(shared, &own));
	ck_assert_int_eq(fchmod(shared, 0777), 0);
	ck_assert(beneath_owner_is_trusted(shared, &others));
	close(shared);
}
END_TEST

START_TEST(opens_real_paths)
{
	static const char *const names[] = {"a/b/file", "a/via/file", "a/b/link"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[sizeof(folder) + 16], through[BENEATH_THROUGH_MAX];
		struct stat st, other;

		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		int fd = beneath_open_real(path, O_PATH);
		ck_assert_int_eq(fd >= 0, i == 0);
		if (fd < 0)
			continue;
		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_int_eq(stat(beneath_through(fd, through), &other), 0);
		ck_assert(beneath_is_same(&st, &other));
		close(fd);
	}
}
END_TEST

/* Paths that a user names: links are followed, the directories are found once. */
START_TEST(finds_places)
{
	static const struct {
		const char *path, *name;
		int kind;
	} places[] = {
	    {"a/b", NULL, BENEATH_DIRECTORY},	  {"a/b///", NULL, BENEATH_DIRECTORY},
	    {"a/b/..", NULL, BENEATH_DIRECTORY},  {".", NULL, BENEATH_DIRECTORY},
	    {"/", NULL, BENEATH_DIRECTORY},	  {"a/via", NULL, BENEATH_DIRECTORY},
	    {"a/etc", NULL, BENEATH_DIRECTORY},	  {"a/b/file", "file", BENEATH_FILE},
	    {"a/via/file", "file", BENEATH_FILE}, {"a/b/link", "file", BENEATH_FILE},
	    {"a/fifo", "fifo", BENEATH_FILE},	  {"a/b/new", "new", BENEATH_NEW},
	    {"new/", "new", BENEATH_NEW},	  {"a/b/dangling", NULL, -BENEATH_DANGLING},
	    {"none/file", NULL, -ENOENT},	  {"a/b/file/x", NULL, -ENOTDIR},
	};

	ck_assert_int_eq(chdir(folder), 0);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct beneath_place place;
		int kind = beneath_find(places[i].path, &place);

		ck_assert_msg(kind == places[i].kind, "%s: %d", places[i].path, kind);
		if (places[i].name)
			ck_assert_str_eq(place.name, places[i].name);
		ck_assert_int_eq(place.folder >= 0, kind >= 0);
		beneath_place_free(&place);
	}
}
END_TEST

/* In a directory where all may make names, a link of another user is not followed. */
START_TEST(finds_no_foreign_link)
{
	struct beneath_place place;
	int shared = beneath_open(base, "a", O_RDONLY | O_DIRECTORY, 0);

	if (geteuid() != 0)
		return;
	ck_assert_int_eq(fchownat(base, "a/via", 65534, 65534, AT_SYMLINK_NOFOLLOW), 0);
	ck_assert_int_eq(fchmod(shared, 01777), 0);
	ck_assert_int_eq(chdir(folder), 0);
	ck_assert_int_eq(beneath_find("a/via", &place), -BENEATH_FOREIGN);
	ck_assert_int_eq(symlinkat("../via", base, "a/b/new"), 0); /* a link to that link */
	ck_assert_int_eq(beneath_find("a/b/new", &place), -BENEATH_FOREIGN);
	ck_assert_int_eq(beneath_find("a/up", &place), BENEATH_DIRECTORY);
	beneath_place_free(&place);
	close(shared);
}
END_TEST

int main(void)
{
	const int count = (int)(sizeof(cases) / sizeof(cases[0]));
	TCase *tcase;
	Suite *suite = unit_suite("client_beneath", &tcase, 60);

	tcase_add_checked_fixture(tcase, tree_make, tree_remove);
	tcase_add_loop_test(tcase, opens_and_refuses, 0, count);
	tcase_add_loop_test(tcase, opens_and_refuses_by_steps, 0, count);
	tcase_add_test(tcase, sets_metadata_by_descriptor);
	tcase_add_test(tcase, changes_a_link_itself);
	tcase_add_test(tcase, trusts_links_as_the_kernel_does);
	tcase_add_test(tcase, opens_real_paths);
	tcase_add_test(tcase, finds_places);
	tcase_add_test(tcase, finds_no_foreign_link);
	return unit_main(suite);
}
