/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin */
/* Calls that must fail, a call per line, with the exact errno. */
#include "tests/mount/prog.h"

#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>

static void *volatile bad_address = (void *)1; /* volatile: the compiler would warn */
static char long_name[NAME_MAX + 2], long_path[PATH_MAX + 1];

static void make_tree(void)
{
	memset(long_name, 'n', NAME_MAX + 1);
	memset(long_path, 'p', PATH_MAX);
	for (int i = NAME_MAX; i < PATH_MAX; i += NAME_MAX + 1)
		long_path[i] = '/';
	put("file", "text");
	OK(mkdir("dir", 0755));
	OK(mkdir("full", 0755));
	put("full/inside", "");
	OK(mkdir("full/sub", 0755));
	OK(symlink("file", "link"));
	OK(symlink("dir", "dirlink"));
	OK(symlink("nowhere", "dangling"));
	OK(symlink("loop2", "loop1"));
	OK(symlink("loop1", "loop2"));
}

static void opening(void)
{
	make_tree();
	FAILS(ENOENT, open("missing", O_RDONLY));
	FAILS(ENOENT, open("missing/file", O_RDWR | O_CREAT, 0644));
	FAILS(ENOENT, open("dangling", O_RDONLY));
	FAILS(EEXIST, open("file", O_RDWR | O_CREAT | O_EXCL, 0644));
	FAILS(EEXIST, open("dangling", O_RDWR | O_CREAT | O_EXCL, 0644));
	FAILS(EEXIST, open("dir", O_RDONLY | O_CREAT | O_EXCL, 0644));
	FAILS(EISDIR, open("dir", O_WRONLY));
	FAILS(EISDIR, open("dir", O_RDWR));
	FAILS(EISDIR, open("dir", O_RDONLY | O_CREAT, 0644));
	FAILS(EISDIR, open("dir", O_RDONLY | O_TRUNC));
	FAILS(ENOTDIR, open("file/inside", O_RDONLY));
	FAILS(ENOTDIR, open("file/inside", O_RDWR | O_CREAT, 0644));
	FAILS(ENOTDIR, open("file", O_RDONLY | O_DIRECTORY));
	FAILS(ENOTDIR, open("file/", O_RDONLY));
	FAILS(ELOOP, open("link", O_RDONLY | O_NOFOLLOW));
	FAILS(ELOOP, open("loop1", O_RDONLY));
	FAILS(ENAMETOOLONG, open(long_name, O_RDONLY));
	FAILS(ENAMETOOLONG, open(long_name, O_RDWR | O_CREAT, 0644));
	FAILS(ENAMETOOLONG, open(long_path, O_RDONLY));
	FAILS(ENOTDIR, open("file", O_TMPFILE | O_RDWR, 0644));
	FAILS(ENOENT, open("missing", O_TMPFILE | O_RDWR, 0644));
	FAILS(EINVAL, open("dir", O_TMPFILE | O_RDONLY, 0644));
}

static void making(void)
{
	make_tree();
	FAILS(EEXIST, mkdir("dir", 0755));
	FAILS(EEXIST, mkdir("file", 0755));
	FAILS(EEXIST, mkdir("dangling", 0755));
	FAILS(EEXIST, mkdir(".", 0755));
	FAILS(ENOENT, mkdir("missing/dir", 0755));
	FAILS(ENOTDIR, mkdir("file/dir", 0755));
	FAILS(ENAMETOOLONG, mkdir(long_name, 0755));
	FAILS(EEXIST, symlink("x", "file"));
	FAILS(EEXIST, symlink("x", "dangling"));
	FAILS(ENOENT, symlink("x", "missing/link"));
	FAILS(ENOENT, symlink("", "empty"));
	FAILS(ENOTDIR, symlink("x", "file/link"));
	FAILS(ENAMETOOLONG, symlink("x", long_name));
	FAILS(ENAMETOOLONG, symlink(long_path, "link2"));
	FAILS(EEXIST, mkfifo("file", 0644));
	FAILS(EEXIST, mkfifo("dir", 0644));
	FAILS(ENOENT, mkfifo("missing/fifo", 0644));
	FAILS(ENOTDIR, mkfifo("file/fifo", 0644));
	FAILS(ENAMETOOLONG, mkfifo(long_name, 0644));
	FAILS(EEXIST, mknod("file", S_IFREG | 0644, 0));
	FAILS(EPERM, mknod("directory", S_IFDIR | 0755, 0));
}

static void linking(void)
{
	make_tree();
	FAILS(EEXIST, link("file", "link"));
	FAILS(EEXIST, link("file", "file"));
	FAILS(EEXIST, link("file", "dir"));
	FAILS(EPERM, link("dir", "dir2"));
	FAILS(ENOENT, link("missing", "file2"));
	FAILS(ENOENT, link("file", "missing/file"));
	FAILS(ENOTDIR, link("file/x", "file2"));
	FAILS(ENOTDIR, link("file", "file/x"));
	FAILS(ENAMETOOLONG, link("file", long_name));
	FAILS(EINVAL, readlink("file", (char[8]){0}, 8));
	FAILS(EINVAL, readlink("dir", (char[8]){0}, 8));
	FAILS(ENOENT, readlink("missing", (char[8]){0}, 8));
}

static void removing(void)
{
	make_tree();
	FAILS(EISDIR, unlink("dir"));
	FAILS(ENOENT, unlink("missing"));
	FAILS(ENOTDIR, unlink("file/x"));
	FAILS(ENOTDIR, unlink("file/"));
	FAILS(ENAMETOOLONG, unlink(long_name));
	FAILS(ENOTDIR, rmdir("file"));
	FAILS(ENOTDIR, rmdir("dirlink"));
	FAILS(ENOTDIR, rmdir("file/x"));
	FAILS(ENOENT, rmdir("missing"));
	FAILS(ENOTEMPTY, rmdir("full"));
	FAILS(EINVAL, rmdir("dir/."));
	FAILS(ENOTEMPTY, rmdir("full/sub/.."));
	FAILS(ENAMETOOLONG, rmdir(long_name));
}

static void renaming(void)
{
	make_tree();
	FAILS(ENOENT, rename("missing", "new"));
	FAILS(ENOENT, rename("file", "missing/new"));
	FAILS(ENOENT, rename("missing", "missing"));
	FAILS(EISDIR, rename("file", "dir"));
	FAILS(EISDIR, rename("link", "dir"));
	FAILS(ENOTDIR, rename("dir", "file"));
	FAILS(ENOTDIR, rename("dir", "link"));
	FAILS(ENOTDIR, rename("file/x", "new"));
	FAILS(ENOTDIR, rename("file", "file/x"));
	FAILS(ENOTDIR, rename("file/", "new"));
	FAILS(ENOTEMPTY, rename("dir", "full"));
	FAILS(ENOTEMPTY, rename("full/sub", "full"));
	FAILS(EINVAL, rename("full", "full/sub"));
	FAILS(EINVAL, rename("full", "full/sub/deeper"));
	FAILS(EINVAL, rename("dir", "dir/self"));
	FAILS(EBUSY, rename("dir/.", "new"));
	FAILS(EBUSY, rename("dir", "full/.."));
	FAILS(ENAMETOOLONG, rename("file", long_name));
	FAILS(ENAMETOOLONG, rename(long_name, "file"));
	FAILS(EEXIST, renameat2(AT_FDCWD, "file", AT_FDCWD, "link", RENAME_NOREPLACE));
	FAILS(EEXIST, renameat2(AT_FDCWD, "file", AT_FDCWD, "dir", RENAME_NOREPLACE));
	FAILS(EEXIST, renameat2(AT_FDCWD, "file", AT_FDCWD, "file", RENAME_NOREPLACE));
	FAILS(ENOENT, renameat2(AT_FDCWD, "file", AT_FDCWD, "missing", RENAME_EXCHANGE));
	FAILS(EINVAL, renameat2(AT_FDCWD, "full", AT_FDCWD, "full/sub", RENAME_EXCHANGE));
	FAILS(EINVAL,
	      renameat2(AT_FDCWD, "file", AT_FDCWD, "link", RENAME_EXCHANGE | RENAME_NOREPLACE));
	FAILS(EINVAL, renameat2(AT_FDCWD, "file", AT_FDCWD, "new", 1 << 20));
	expect_text("file", "text");
	CHECK(exists("full/inside") && exists("full/sub"));
}

static void reading_and_writing(void)
{
	char byte = 0;

	make_tree();
	int reader = OK(open("file", O_RDONLY)), writer = OK(open("file", O_WRONLY));
	int dir = OK(open("dir", O_RDONLY)), path = OK(open("file", O_PATH));

	FAILS(EBADF, write(reader, &byte, 1));
	FAILS(EBADF, read(writer, &byte, 1));
	FAILS(EBADF, read(path, &byte, 1));
	FAILS(EISDIR, read(dir, &byte, 1));
	FAILS(EBADF, write(dir, &byte, 1));
	FAILS(EINVAL, pread(reader, &byte, 1, -1));
	FAILS(EINVAL, pwrite(writer, &byte, 1, -1));
	FAILS(EFAULT, write(writer, bad_address, 4096));
	FAILS(EFAULT, read(reader, bad_address, 4096));
	FAILS(EINVAL, lseek(reader, -1, SEEK_SET));
	FAILS(ENXIO, lseek(reader, 4, SEEK_DATA));
	FAILS(ENXIO, lseek(reader, 4, SEEK_HOLE));
	FAILS(ENXIO, lseek(reader, 1 << 20, SEEK_HOLE));
	FAILS(EINVAL, ftruncate(writer, -1));
	FAILS(EINVAL, ftruncate(reader, 1));
	FAILS(EISDIR, truncate("dir", 0));
	FAILS(ENOENT, truncate("missing", 0));
	FAILS(ENOTDIR, truncate("file/x", 0));
	expect_text("file", "text");
}

/* A plain directory on tmpfs has no such size limit. */
static void past_the_largest_file(void)
{
	need_daemon();
	make_tree();
	int fd = OK(open("file", O_RDWR));

	FAILS(EFBIG, pwrite(fd, "x", 1, INT64_MAX - 1));
	FAILS(EFBIG, ftruncate(fd, INT64_MAX));
	FAILS(EFBIG, truncate("file", INT64_MAX - 4096));
	FAILS(EFBIG, fallocate(fd, 0, INT64_MAX - 4096, 4096));
	FAILS(EFBIG, fallocate(fd, 0, INT64_MAX - 4096, 8192));
	EQUAL(pread(fd, (char[1]){0}, 1, INT64_MAX - 1), 0);
	EQUAL(size_of(fd), 4);
	expect_text("file", "text");
}

static void allocating(void)
{
	make_tree();
	int reader = OK(open("file", O_RDONLY)), fd = OK(open("file", O_RDWR));
	int dir = OK(open("dir", O_RDONLY)), pipes[2];

	OK(pipe(pipes));
	FAILS(EBADF, fallocate(reader, 0, 0, 1));
	FAILS(EBADF, fallocate(dir, 0, 0, 1));
	FAILS(ESPIPE, fallocate(pipes[1], 0, 0, 1));
	FAILS(EINVAL, fallocate(fd, 0, 0, 0));
	FAILS(EINVAL, fallocate(fd, 0, -1, 1));
	FAILS(EINVAL, fallocate(fd, 0, 0, -1));
	FAILS(EOPNOTSUPP, fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 1));
	FAILS(EOPNOTSUPP, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE, 0, 1));
	FAILS(EOPNOTSUPP, fallocate(fd, 1 << 20, 0, 1));
	expect_text("file", "text");
}

static void copying(void)
{
	off_t zero = 0, one = 1, negative = -1;

	make_tree();
	int fd = OK(open("file", O_RDWR)), reader = OK(open("file", O_RDONLY));
	int append = OK(open("file", O_RDWR | O_APPEND)), dir = OK(open("dir", O_RDONLY));
	int pipes[2];

	OK(pipe(pipes));
	FAILS(EBADF, copy_file_range(fd, NULL, reader, NULL, 1, 0));
	FAILS(EBADF, copy_file_range(fd, NULL, append, NULL, 1, 0));
	FAILS(EISDIR, copy_file_range(dir, NULL, fd, NULL, 1, 0));
	FAILS(EINVAL, copy_file_range(pipes[0], NULL, fd, NULL, 1, 0));
	FAILS(EINVAL, copy_file_range(fd, &zero, fd, &one, 3, 0));
	FAILS(EINVAL, copy_file_range(fd, &zero, fd, &one, 3, 1));
	FAILS(EOVERFLOW, copy_file_range(fd, &negative, fd, &zero, 1, 0));
	expect_text("file", "text");
}

static void attributes(void)
{
	char name[XATTR_NAME_MAX + 8] = "user.", big[XATTR_SIZE_MAX + 1] = "";

	make_tree();
	memset(name + 5, 'x', XATTR_NAME_MAX + 1 - 5);
	OK(setxattr("file", "user.foo", "value", 5, 0));
	FAILS(ENODATA, getxattr("file", "user.bar", NULL, 0));
	FAILS(ENODATA, removexattr("file", "user.bar"));
	FAILS(ENOENT, getxattr("missing", "user.foo", NULL, 0));
	FAILS(ENOENT, setxattr("missing", "user.foo", "v", 1, 0));
	FAILS(ENOENT, listxattr("missing", NULL, 0));
	FAILS(EEXIST, setxattr("file", "user.foo", "v", 1, XATTR_CREATE));
	FAILS(ENODATA, setxattr("file", "user.bar", "v", 1, XATTR_REPLACE));
	FAILS(ERANGE, getxattr("file", "user.foo", big, 4));
	FAILS(ERANGE, listxattr("file", big, 2));
	FAILS(E2BIG, setxattr("file", "user.big", big, sizeof(big), 0));
	FAILS(ERANGE, setxattr("file", name, "v", 1, 0));
	FAILS(EINVAL, setxattr("file", "user.foo", "v", 1, 1 << 10));
	FAILS(EOPNOTSUPP, setxattr("file", "nonamespace", "v", 1, 0));
	FAILS(EPERM, lsetxattr("link", "user.foo", "v", 1, 0));
	EQUAL(getxattr("file", "user.foo", big, 5), 5);
}

static void across_gpus(void)
{
	need_daemon();
	make_tree();
	FAILS(EXDEV, link("file", other("file")));
	FAILS(EXDEV, rename("full", other("full")));
	CHECK(exists("full/inside") && !exists(other("full")) && !exists(other("file")));
}

PROG(TEST(opening), TEST(making), TEST(linking), TEST(removing), TEST(renaming),
     TEST(reading_and_writing), TEST(past_the_largest_file), TEST(allocating), TEST(copying),
     TEST(attributes), TEST(across_gpus))
