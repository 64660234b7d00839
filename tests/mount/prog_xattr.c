/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host */
/* Extended attributes of users (user.*): values, lists, flags, on every kind of file. */
#include "tests/mount/prog.h"

#include <linux/capability.h>
#include <sys/syscall.h>
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
	put("dir/new", ""); /* names other than user.gpumem.* are not inherited */
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

static void names_are_not_empty(void)
{
	put("file", "");
	FAILS(EINVAL, setxattr("file", "user.", "v", 1, 0));
	FAILS(EINVAL, getxattr("file", "user.", NULL, 0));
	FAILS(EINVAL, removexattr("file", "user."));
	if (geteuid() == 0)
		FAILS(EINVAL, setxattr("file", "trusted.", "v", 1, 0));
	CHECK(!listed("file", "user.") && !listed("file", "trusted."));
}

static void list_as_another(int unused)
{
	(void)unused;
	OK(setresgid(65534, 65534, 65534));
	OK(setresuid(65534, 65534, 65534));
	CHECK(listed("file", "user.seen"));
	CHECK(!listed("file", "trusted.hidden"));
	FAILS(ENODATA, getxattr("file", "trusted.hidden", NULL, 0));
}

static void list_without_the_capability(int unused)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	(void)unused;
	OK(syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1U << CAP_SYS_ADMIN);
	OK(syscall(SYS_capset, &header, data));
	CHECK(listed("file", "user.seen"));
	CHECK(!listed("file", "trusted.hidden"));
}

/* A process without permission to read trusted.* attributes does not see their names. */
static void trusted_names_are_root_s(void)
{
	put("file", "");
	if (geteuid() != 0 || setxattr("file", "trusted.hidden", "v", 1, 0))
		SKIP("needs CAP_SYS_ADMIN");
	OK(setxattr("file", "user.seen", "v", 1, 0));
	CHECK(listed("file", "trusted.hidden"));
	OK(chmod("file", 0644));
	spawn(list_as_another, 0);
	spawn(list_without_the_capability, 0);
	join_all(2);
	CHECK(listed("file", "trusted.hidden"));
}

PROG(TEST(round_trip), TEST(any_bytes_as_value), TEST(flags), TEST(many),
     TEST(on_directories_and_by_descriptor), TEST(kept_over_rename_and_link),
     TEST(gone_with_the_file), TEST(names_are_not_empty), TEST(trusted_names_are_root_s))
