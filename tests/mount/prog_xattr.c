/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Extended attributes of one's own (user.*): values, lists, flags, on every kind of file. */
#include "tests/mount/prog.h"

#include <sys/xattr.h>

static void expect_value(const char *path, const char *name, const void *value, size_t size)
{
	static char got[XATTR_SIZE_MAX];

	EQUAL(getxattr(path, name, got, sizeof(got)), (long)size);
	CHECK(!memcmp(got, value, size));
	EQUAL(getxattr(path, name, NULL, 0), (long)size);
}

static bool listed(const char *path, const char *name)
{
	static char names[XATTR_LIST_MAX];
	long size = OK(listxattr(path, names, sizeof(names)));

	EQUAL(listxattr(path, NULL, 0), size);
	for (char *at = names; at < names + size; at += strlen(at) + 1)
		if (!strcmp(at, name))
			return true;
	return false;
}

static void round_trip(void)
{
	put("file", "");
	OK(setxattr("file", "user.foo", "value", 5, 0));
	expect_value("file", "user.foo", "value", 5);
	OK(setxattr("file", "user.foo", "other value", 11, 0));
	expect_value("file", "user.foo", "other value", 11);
	CHECK(listed("file", "user.foo"));
	OK(removexattr("file", "user.foo"));
	CHECK(!listed("file", "user.foo"));
	FAILS(ENODATA, getxattr("file", "user.foo", NULL, 0));
}

static void any_bytes_as_value(void)
{
	unsigned char value[1024];

	put("file", "");
	for (int i = 0; i < 1024; i++)
		value[i] = i * 7;
	OK(setxattr("file", "user.bytes", value, sizeof(value), 0));
	expect_value("file", "user.bytes", value, sizeof(value));
	OK(setxattr("file", "user.empty", "", 0, 0));
	expect_value("file", "user.empty", "", 0);
	OK(setxattr("file", "user.UPPER and spaces \xc3\xa9", "x", 1, 0));
	CHECK(listed("file", "user.UPPER and spaces \xc3\xa9"));
}

static void flags(void)
{
	put("file", "");
	FAILS(ENODATA, setxattr("file", "user.a", "1", 1, XATTR_REPLACE));
	CHECK(!listed("file", "user.a"));
	OK(setxattr("file", "user.a", "1", 1, XATTR_CREATE));
	FAILS(EEXIST, setxattr("file", "user.a", "2", 1, XATTR_CREATE));
	expect_value("file", "user.a", "1", 1);
	OK(setxattr("file", "user.a", "2", 1, XATTR_REPLACE));
	expect_value("file", "user.a", "2", 1);
}

static void many(void)
{
	char name[32];

	put("file", "");
	for (int i = 0; i < 50; i++) {
		sprintf(name, "user.number%d", i);
		OK(setxattr("file", name, name, strlen(name), 0));
	}
	for (int i = 0; i < 50; i += 2) {
		sprintf(name, "user.number%d", i);
		OK(removexattr("file", name));
	}
	for (int i = 0; i < 50; i++) {
		sprintf(name, "user.number%d", i);
		EQUAL(listed("file", name), i % 2);
		if (i % 2)
			expect_value("file", name, name, strlen(name));
	}
}

static void on_directories_and_by_descriptor(void)
{
	OK(mkdir("dir", 0755));
	int fd = new_file("dir/file"), dir = OK(open("dir", O_RDONLY));

	OK(setxattr("dir", "user.on", "directory", 9, 0));
	OK(fsetxattr(fd, "user.on", "file", 4, 0));
	expect_value("dir", "user.on", "directory", 9);
	expect_value("dir/file", "user.on", "file", 4);
	EQUAL(fgetxattr(dir, "user.on", NULL, 0), 9);
	OK(fremovexattr(fd, "user.on"));
	EQUAL(fgetxattr(dir, "user.on", NULL, 0), 9);
	put("dir/new", ""); /* other names than user.gpumem.* are not inherited */
	FAILS(ENODATA, getxattr("dir/new", "user.on", NULL, 0));
}

static void kept_over_rename_and_link(void)
{
	put("file", "");
	OK(setxattr("file", "user.a", "1", 1, 0));
	OK(link("file", "link"));
	OK(rename("file", "moved"));
	expect_value("moved", "user.a", "1", 1);
	OK(setxattr("link", "user.a", "22", 2, 0));
	expect_value("moved", "user.a", "22", 2);
}

static void gone_with_the_file(void)
{
	for (int i = 0; i < 3; i++) {
		put("file", "");
		FAILS(ENODATA, getxattr("file", "user.a", NULL, 0));
		OK(setxattr("file", "user.a", "1", 1, 0));
		OK(unlink("file"));
	}
}

PROG(TEST(round_trip), TEST(any_bytes_as_value), TEST(flags), TEST(many),
     TEST(on_directories_and_by_descriptor), TEST(kept_over_rename_and_link),
     TEST(gone_with_the_file))
