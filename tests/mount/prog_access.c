/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host tsan */
/* Permissions: owners, modes, set-id and sticky bits, for root and for other users. */
#include "tests/mount/prog.h"

#include <grp.h>
#include <sys/xattr.h>

#define USER  65534
#define PEER  65533
#define GROUP 65500

/* Becomes an ordinary user permanently. */
static void become(uid_t uid, gid_t gid)
{
	OK(setgroups(0, NULL));
	OK(setresgid(gid, gid, gid));
	OK(setresuid(uid, uid, uid));
}

static void be_in_group(uid_t uid, gid_t gid, gid_t group)
{
	OK(setgroups(1, &group));
	OK(setresgid(gid, gid, gid));
	OK(setresuid(uid, uid, uid));
}

static void owned(const char *path, uid_t uid, gid_t gid, mode_t mode)
{
	put(path, "text");
	OK(chown(path, uid, gid));
	OK(chmod(path, mode));
}

static mode_t mode_of(const char *path)
{
	return stat_of(path).st_mode & 07777;
}

static void new_things_take_mode_and_owner(void)
{
	OK(chmod(".", 0777));
	become(USER, GROUP);
	umask(027);
	OK(close(OK(open("file", O_CREAT | O_WRONLY, 06666))));
	OK(mkdir("dir", 01777));
	OK(mkfifo("fifo", 0666));
	OK(symlink("x", "link"));
	EQUAL(mode_of("file"), 06640);
	EQUAL(mode_of("dir"), 01750);
	EQUAL(mode_of("fifo"), 0640);
	EQUAL(stat_of("file").st_uid, USER);
	EQUAL(stat_of("file").st_gid, GROUP);
	EQUAL(stat_of("dir").st_uid, USER);
	EQUAL(stat_of("link").st_uid, USER);
}

static void a_new_file_may_be_read_only(void)
{
	OK(chmod(".", 0777));
	become(USER, USER);
	int fd = OK(open("file", O_CREAT | O_RDWR, 0400));

	write_all(fd, "text", 4, 0);
	FAILS(EACCES, open("file", O_WRONLY));
	FAILS(EACCES, truncate("file", 0));
	OK(ftruncate(fd, 2));
	expect_text("file", "te");
}

static void owner_group_and_others(void)
{
	owned("owner", USER, 0, 0600);
	owned("group", 0, GROUP, 0640);
	owned("others", 0, 0, 0604);
	owned("none", 0, 0, 0600);
	owned("not_owner", USER, USER, 0077);
	be_in_group(USER, USER, GROUP);
	OK(open("owner", O_RDWR));
	OK(open("group", O_RDONLY));
	FAILS(EACCES, open("group", O_WRONLY));
	OK(open("others", O_RDONLY));
	FAILS(EACCES, open("others", O_RDWR));
	FAILS(EACCES, open("none", O_RDONLY));
	FAILS(EACCES, open("not_owner", O_RDONLY));
	FAILS(EACCES, access("group", W_OK));
	OK(access("group", R_OK));
}

static void directories(void)
{
	OK(mkdir("read", 0744));
	OK(mkdir("search", 0711));
	OK(mkdir("closed", 0700));
	put("read/file", "text");
	put("search/file", "text");
	put("closed/file", "text");
	become(USER, USER);
	OK(open("read", O_RDONLY));
	FAILS(EACCES, open("read/file", O_RDONLY));
	FAILS(EACCES, open("search", O_RDONLY));
	expect_text("search/file", "text");
	FAILS(EACCES, open("closed/file", O_RDONLY));
	FAILS(EACCES, chdir("read"));
	FAILS(EACCES, open("search/new", O_CREAT | O_WRONLY, 0644));
	FAILS(EACCES, mkdir("search/new", 0755));
	FAILS(EACCES, unlink("search/file"));
	FAILS(EACCES, rename("search/file", "search/new"));
	FAILS(EACCES, symlink("x", "search/new"));
	FAILS(EACCES, open("search", O_TMPFILE | O_RDWR, 0600));
}

static void sticky_directory(void)
{
	OK(mkdir("dir", 0755));
	OK(chmod("dir", 01777));
	owned("dir/mine", USER, USER, 0644);
	owned("dir/theirs", PEER, PEER, 0666);
	become(USER, USER);
	FAILS(EPERM, unlink("dir/theirs"));
	FAILS(EPERM, rename("dir/theirs", "dir/new"));
	FAILS(EPERM, rename("dir/mine", "dir/theirs"));
	OK(rename("dir/mine", "dir/new"));
	OK(unlink("dir/new"));
}

static void only_the_owner_changes_attributes(void)
{
	owned("file", 0, 0, 0666);
	owned("mine", USER, USER, 0600);
	be_in_group(USER, USER, GROUP);
	FAILS(EPERM, chmod("file", 0777));
	FAILS(EPERM, chown("file", USER, USER));
	FAILS(EPERM, chown("mine", PEER, -1));
	FAILS(EPERM, chown("mine", -1, PEER));
	OK(chown("mine", -1, GROUP));
	OK(chmod("mine", 0640));
	FAILS(EPERM, utimensat(AT_FDCWD, "file", (struct timespec[]){{1, 0}, {1, 0}}, 0));
	/* A user with write permission may set the times to now. */
	OK(utimensat(AT_FDCWD, "file", NULL, 0));
	OK(utimensat(AT_FDCWD, "mine", (struct timespec[]){{1, 0}, {1, 0}}, 0));
}

static void set_id_bits_do_not_survive(void)
{
	owned("written", USER, USER, 06777);
	owned("chowned", USER, USER, 06755);
	owned("cut", USER, USER, 06777);
	owned("chmodded", USER, GROUP, 0755);
	OK(chown("chowned", PEER, PEER));
	EQUAL(mode_of("chowned"), 0755);
	become(USER, USER);
	int fd = OK(open("written", O_WRONLY));
	write_all(fd, "x", 1, 0);
	EQUAL(mode_of("written"), 0777);
	OK(truncate("cut", 1));
	EQUAL(mode_of("cut"), 0777);
	/* The owner is not in the file's group: the set-group-ID bit is dropped. */
	OK(chmod("chmodded", 02755));
	EQUAL(mode_of("chmodded"), 0755);
}

static void set_gid_directory_is_inherited(void)
{
	OK(mkdir("dir", 0777));
	OK(chown("dir", 0, GROUP));
	OK(chmod("dir", 02777));
	become(USER, USER);
	put("dir/file", "text");
	OK(mkdir("dir/sub", 0755));
	EQUAL(stat_of("dir/file").st_gid, GROUP);
	EQUAL(stat_of("dir/sub").st_gid, GROUP);
	CHECK(mode_of("dir/sub") & S_ISGID);
}

static void xattrs_follow_the_mode(void)
{
	owned("readable", 0, 0, 0644);
	owned("closed", 0, 0, 0600);
	OK(setxattr("readable", "user.a", "b", 1, 0));
	OK(setxattr("closed", "user.a", "b", 1, 0));
	become(USER, USER);
	EQUAL(getxattr("readable", "user.a", NULL, 0), 1);
	FAILS(EACCES, setxattr("readable", "user.a", "c", 1, 0));
	FAILS(EACCES, removexattr("readable", "user.a"));
	FAILS(EACCES, getxattr("closed", "user.a", NULL, 0));
}

static void root_may_all(void)
{
	owned("closed", USER, USER, 0);
	OK(mkdir("dir", 0));
	OK(open("closed", O_RDWR));
	put("dir/file", "text");
	expect_text("dir/file", "text");
	FAILS(EACCES, access("closed", X_OK));
	OK(lchown("closed", 4000000000U, 4000000001U));
	EQUAL(stat_of("closed").st_uid, 4000000000U);
}

static void programs_run(void)
{
	put("script", "#!/bin/sh\nexit 7\n");
	CHECK(system("./script 2>/dev/null") != 0);
	OK(chmod("script", 0755));
	EQUAL(WEXITSTATUS(system("./script")), 7);
	EQUAL(system("cp /bin/true program && ./program"), 0);
}

PROG(TEST(new_things_take_mode_and_owner), TEST(a_new_file_may_be_read_only),
     TEST(owner_group_and_others), TEST(directories), TEST(sticky_directory),
     TEST(only_the_owner_changes_attributes), TEST(set_id_bits_do_not_survive),
     TEST(set_gid_directory_is_inherited), TEST(xattrs_follow_the_mode), TEST(root_may_all),
     TEST(programs_run))
