/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host */
/* Names: hard links, symbolic links, FIFOs, sockets, and allowed names. */
#include "tests/mount/prog.h"

#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

static void hard_links(void)
{
	int fd = new_file("a");
	ino_t inode = stat_of("a").st_ino;

	OK(mkdir("dir", 0755));
	OK(link("a", "dir/b"));
	OK(link("dir/b", "c"));
	EQUAL(stat_of("a").st_nlink, 3);
	EQUAL(stat_of("c").st_ino, inode);
	pattern_write(fd, 1, 0, 1 * MIB);
	int c = OK(open("c", O_RDONLY));
	pattern_check(c, 1, 0, 1 * MIB);
	OK(unlink("a"));
	EQUAL(stat_of("dir/b").st_nlink, 2);
	OK(unlink("c"));
	OK(unlink("dir/b"));
	pattern_check(c, 1, 0, 1 * MIB);
}

static void links_of_other_kinds(void)
{
	OK(symlink("nowhere", "link"));
	OK(linkat(AT_FDCWD, "link", AT_FDCWD, "link2", 0));
	CHECK(S_ISLNK(stat_of("link2").st_mode));
	EQUAL(stat_of("link").st_nlink, 2);
	OK(mkfifo("fifo", 0644));
	OK(link("fifo", "fifo2"));
	EQUAL(stat_of("fifo2").st_ino, stat_of("fifo").st_ino);
}

static void directory_link_counts(void)
{
	OK(mkdir("dir", 0755));
	nlink_t empty = stat_of("dir").st_nlink;

	OK(mkdir("dir/sub", 0755));
	nlink_t one = stat_of("dir").st_nlink;
	put("dir/file", "");
	EQUAL(stat_of("dir").st_nlink, one);
	OK(rmdir("dir/sub"));
	EQUAL(stat_of("dir").st_nlink, empty);
}

static void symlinks(void)
{
	char target[PATH_MAX], got[PATH_MAX] = "";

	memset(target, 't', sizeof(target));
	for (int i = 200; i < PATH_MAX; i += 200)
		target[i] = '/';
	target[PATH_MAX - 1] = '\0';
	OK(symlink(target, "long"));
	EQUAL(readlink("long", got, sizeof(got)), PATH_MAX - 1);
	CHECK(!memcmp(got, target, PATH_MAX - 1));
	EQUAL(stat_of("long").st_size, PATH_MAX - 1);
	EQUAL(readlink("long", got, 10), 10);
	EQUAL(stat_of("long").st_mode & 07777, 0777);
	put("file", "text");
	OK(symlink("./file", "here"));
	expect_text("here", "text");
	OK(unlink("here"));
	expect_text("file", "text");
}

static void fifo_writer(int unused)
{
	(void)unused;
	int fd = OK(open("fifo", O_WRONLY));

	EQUAL(write(fd, "through the pipe", 16), 16);
}

static void fifos(void)
{
	char got[17] = "";

	OK(mkfifo("fifo", 0622));
	CHECK(S_ISFIFO(stat_of("fifo").st_mode));
	EQUAL(stat_of("fifo").st_mode & 07777, 0600);
	spawn(fifo_writer, 0);
	int fd = OK(open("fifo", O_RDONLY));
	EQUAL(read(fd, got, 16), 16);
	CHECK(!strcmp(got, "through the pipe"));
	join_all(1);
	OK(unlink("fifo"));
}

/* Whether this user may make a device node. */
static bool make_device(const char *name, mode_t mode, dev_t device)
{
	if (mknod(name, mode, device) == 0)
		return true;
	EQUAL(errno, EPERM);
	return false;
}

static void expect_device(const char *name, mode_t mode, dev_t device)
{
	struct stat st = stat_of(name);
	struct statx stx;

	EQUAL(st.st_mode, mode);
	EQUAL(st.st_rdev, device);
	EQUAL(st.st_size, 0);
	OK(statx(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &stx));
	EQUAL(makedev(stx.stx_rdev_major, stx.stx_rdev_minor), device);
}

static void device_nodes(void)
{
	const dev_t null = makedev(1, 3), far = makedev(4095, 1048575);

	if (!make_device("character", S_IFCHR | 0640, null))
		SKIP("needs CAP_MKNOD");
	OK(mknod("block", S_IFBLK | 0604, far));
	expect_device("character", S_IFCHR | 0640, null);
	expect_device("block", S_IFBLK | 0604, far);
	OK(chmod("block", 0600));
	OK(chown("block", 5, 6));
	OK(link("block", "linked"));
	OK(rename("block", "renamed"));
	expect_device("renamed", S_IFBLK | 0600, far);
	EQUAL(stat_of("linked").st_nlink, 2);
	EQUAL(stat_of("linked").st_gid, 6);
	FAILS(EEXIST, mknod("linked", S_IFCHR | 0600, null));
	OK(unlink("linked"));
	OK(unlink("renamed"));
	if (prog_on_daemon()) /* libfuse mounts with nodev, so the kernel refuses */
		FAILS(EACCES, open("character", O_RDONLY));
	OK(rename("character", other("character")));
	expect_device(other("character"), S_IFCHR | 0640, null);
	OK(unlink(other("character")));
}

static void make_devices_as_another(int unused)
{
	(void)unused;
	OK(setresgid(65534, 65534, 65534));
	OK(setresuid(65534, 65534, 65534));
	FAILS(EPERM, mknod("character", S_IFCHR | 0644, makedev(1, 3)));
	FAILS(EPERM, mknod("block", S_IFBLK | 0644, makedev(7, 0)));
	CHECK(!exists("character") && !exists("block"));
	/* Device number 0 is no real device: overlay filesystems use the node as a whiteout. */
	OK(mknod("whiteout", S_IFCHR | 0644, 0));
	expect_device("whiteout", S_IFCHR | 0644, 0);
}

static void device_nodes_of_others(void)
{
	if (geteuid() != 0)
		SKIP("needs root");
	OK(chmod(".", 0777));
	spawn(make_devices_as_another, 0);
	join_all(1);
}

static void socket_client(int unused)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
	int fd = OK(socket(AF_UNIX, SOCK_STREAM, 0));

	(void)unused;
	OK(connect(fd, (struct sockaddr *)&address, sizeof(address)));
	EQUAL(write(fd, "hello", 5), 5);
}

static void sockets(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
	int server = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	char got[6] = "";

	OK(bind(server, (struct sockaddr *)&address, sizeof(address)));
	OK(listen(server, 1));
	CHECK(S_ISSOCK(stat_of("socket").st_mode));
	spawn(socket_client, 0);
	int fd = OK(accept(server, NULL, NULL));
	EQUAL(read(fd, got, 5), 5);
	CHECK(!strcmp(got, "hello"));
	join_all(1);
	int second = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	FAILS(EADDRINUSE, bind(second, (struct sockaddr *)&address, sizeof(address)));
	OK(unlink("socket"));
	OK(bind(second, (struct sockaddr *)&address, sizeof(address)));
}

static void longest_names(void)
{
	char name[NAME_MAX + 2] = "", newer[NAME_MAX + 2] = "";

	memset(name, 'n', NAME_MAX);
	memset(newer, 'm', NAME_MAX);
	put(name, "text");
	OK(rename(name, newer));
	OK(link(newer, name));
	expect_text(name, "text");
	OK(unlink(name));
	OK(unlink(newer));
	OK(mkdir(name, 0755));
	OK(symlink("x", newer));
	name[NAME_MAX] = 'n';
	FAILS(ENAMETOOLONG, open(name, O_CREAT | O_RDWR, 0644));
	FAILS(ENAMETOOLONG, mkdir(name, 0755));
	FAILS(ENAMETOOLONG, rename(newer, name));
	FAILS(ENAMETOOLONG, lstat(name, &(struct stat){0}));
}

static void any_byte_is_a_name(void)
{
	char name[4] = "x?y";

	for (int byte = 1; byte < 256; byte++) {
		if (byte == '/')
			continue;
		name[1] = byte;
		put(name, name);
	}
	for (int byte = 1; byte < 256; byte++) {
		if (byte == '/')
			continue;
		name[1] = byte;
		expect_text(name, name);
	}
	put("...", "dots");
	put("Case", "upper");
	put("case", "lower");
	expect_text("...", "dots");
	expect_text("Case", "upper");
}

static void deep_paths(void)
{
	for (int i = 0; i < 300; i++) {
		OK(mkdir("d", 0755));
		OK(chdir("d"));
	}
	put("file", "deep");
	expect_text("file", "deep");
	for (int i = 0; i < 300; i++) {
		OK(chdir(".."));
		if (i == 0)
			OK(unlink("d/file"));
		OK(rmdir("d"));
	}
}

/* Directories nested as deep as a path can name. The directories below move with a rename. */
static void deepest_directory(void)
{
	int depth = 0;

	need_daemon();
	OK(mkdir("other", 0755));
	OK(mkdir("other/below", 0755));
	int top = OK(open(".", O_RDONLY | O_DIRECTORY));

	while (mkdir("d", 0755) == 0) {
		OK(chdir("d"));
		depth++;
	}
	EQUAL(errno, ENAMETOOLONG);
	CHECK(depth > 1900 && depth < 2000);
	put("file", "deepest");
	expect_text("file", "deepest");
	OK(unlink("file"));
	OK(chdir(".."));
	FAILS(ENAMETOOLONG, renameat(top, "other", AT_FDCWD, "other"));
	OK(renameat(top, "other/below", AT_FDCWD, "below"));
	OK(rmdir("below"));
	OK(renameat(top, "other", AT_FDCWD, "other"));
	OK(rmdir("other"));
	for (; depth; depth--) {
		OK(rmdir("d"));
		OK(chdir(".."));
	}
}

PROG(TEST(hard_links), TEST(links_of_other_kinds), TEST(directory_link_counts), TEST(symlinks),
     TEST(fifos), TEST(device_nodes), TEST(device_nodes_of_others), TEST(sockets),
     TEST(longest_names), TEST(any_byte_is_a_name), TEST(deep_paths), TEST(deepest_directory))
