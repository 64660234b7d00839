/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/system/mounts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "tests/unit/unit.h"

static const char text[] =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "23 22 0:5 / /proc rw,nosuid - proc proc rw\n"
    "36 22 0:40 / /mnt/gpumem rw,nosuid,nodev shared:9 master:1 propagate_from:2 - fuse.gpumemfs "
    "gpumem rw,user_id=0,group_id=0,allow_other\n"
    "37 22 0:41 / /mnt/with\\040blank\\011tab\\012line\\134slash rw - fuse.gpumemfs gpumem rw\n"
    "38 22 0:42 / /mnt/other rw - fuse.sshfs gpumemfs rw\n"
    "39 22 0:43 /sub /mnt/twice rw - tmpfs tmpfs rw\n"
    "40 39 0:44 / /mnt/twice rw - fuse.gpumemfs gpumem rw\n"
    "41 22 0:45 / /mnt/bad\\04 rw - fuse.gpumemfs gpumem rw\n"
    /* Lines that proc(5) does not allow. */
    "\n"
    "42 22 0:46 / /mnt/cut\n"
    "43 22 0:47 / /mnt/no-dash rw shared:1 fuse.gpumemfs gpumem rw\n"
    "44 22 0:48 / /mnt/no-type rw -\n"
    "- - - - - - - -\n"
    "45 22 0:49 / /mnt/last rw - fuse.gpumemfs gpumem rw";

static const struct {
	const char *path, *prefix;
	bool mounted;
} cases[] = {
    {"/mnt/gpumem", "fuse.gpumemfs", true},
    {"/mnt/gpumem", "fuse", true},
    {"/mnt/gpumem", "", true},
    {"/mnt/gpumem", "fuse.gpumemfs2", false},
    {"/mnt/gpumem", "ext4", false},
    {"/mnt/gpume", "", false},
    {"/mnt/gpumem/", "", false},
    {"/mnt/gpumem/gpu0", "", false},
    {"/mnt", "", false},
    {"/", "ext", true},
    {"/mnt/with blank\ttab\nline\\slash", "fuse.gpumemfs", true},
    {"/mnt/with\\040blank\\011tab\\012line\\134slash", "", false},
    {"/mnt/other", "fuse.gpumemfs", false},
    {"/mnt/other", "fuse.", true},
    {"/mnt/twice", "fuse.gpumemfs", true},
    {"/mnt/twice", "tmpfs", true},
    {"/mnt/bad\\04", "fuse.gpumemfs", true},
    {"/mnt/cut", "", false},
    {"/mnt/no-dash", "", false},
    {"/mnt/no-type", "", false},
    {"-", "", false},
    {"", "", false},
    {"/mnt/last", "fuse.gpumemfs", true},
};

START_TEST(finds_what_is_mounted)
{
	FILE *table = fmemopen((char *)text, strlen(text), "r");

	ck_assert_msg(mountinfo_find(table, cases[_i].path, cases[_i].prefix) == cases[_i].mounted,
		      "'%s' as %s", cases[_i].path, cases[_i].prefix);
	fclose(table);
}
END_TEST

static const char fuse_mounts[] =
    "36 22 0:40 / /mnt/a rw shared:9 - fuse.gpumemfs gpumem rw,user_id=0,group_id=0,allow_other\n"
    "37 22 7:1048575 / /mnt/b rw - fuse.gpumemfs gpu\\040mem rw,user_id=1000\n"
    "38 22 0:41 / /mnt/a rw - fuse.gpumemfs gpumem rw,user_id=5,group_id=0\n"
    "39 22 0:42 / /mnt/c rw - fuse.gpumemfs gpumem rw,group_id=0\n"
    "40 22 0 / /mnt/d rw - fuse.gpumemfs gpumem rw,user_id=5\n"
    "41 22 0:43 / /mnt/e rw - fuse.gpumemfs gpumem rw,user_id=x\n"
    "42 22 0:44 / /mnt/f rw - fuse.gpumemfs gpumem\n"
    "43 22 0:45 / /mnt/b rw - fuse.other gpumem rw,user_id=7\n";

static bool read_one(const char *path, struct mountinfo *info)
{
	FILE *table = fmemopen((char *)fuse_mounts, strlen(fuse_mounts), "r");
	bool found = mountinfo_read(table, path, "fuse.gpumemfs", info);

	fclose(table);
	return found;
}

START_TEST(whose_mount_and_which)
{
	struct mountinfo info;

	ck_assert(read_one("/mnt/a", &info));
	ck_assert_uint_eq(info.device, makedev(0, 41)); /* hides the earlier mount */
	ck_assert_uint_eq(info.user, 5);
	ck_assert(read_one("/mnt/b", &info));
	ck_assert_uint_eq(info.device, makedev(7, 1048575));
	ck_assert_uint_eq(info.user, 1000);
	for (const char *path = "cdefg"; *path; path++) {
		char whole[] = {'/', 'm', 'n', 't', '/', *path, 0};

		ck_assert_msg(!read_one(whole, &info), "%s", whole);
	}
}
END_TEST

static char *options_of(const char *path)
{
	FILE *table = fmemopen((char *)fuse_mounts, strlen(fuse_mounts), "r");
	char *options = mountinfo_options(table, path, "fuse.gpumemfs");

	fclose(table);
	return options;
}

START_TEST(options_of_the_last_mount)
{
	char *options = options_of("/mnt/a");

	ck_assert_str_eq(options, "rw,rw,user_id=5,group_id=0");
	ck_assert(option_list_has(options, "rw"));
	ck_assert(option_list_has(options, "user_id"));
	ck_assert(option_list_has(options, "group_id"));
	ck_assert(!option_list_has(options, "user"));
	ck_assert(!option_list_has(options, "id"));
	ck_assert(!option_list_has(NULL, "rw"));
	free(options);
	options = options_of("/mnt/f");
	ck_assert_str_eq(options, "rw,");
	free(options);
	ck_assert_ptr_null(options_of("/mnt/b")); /* another type hides the mount */
	ck_assert_ptr_null(options_of("/mnt/none"));
}
END_TEST

START_TEST(which_devices_are_mounted)
{
	FILE *table = fmemopen((char *)text, strlen(text), "r");

	/* Each search begins at the start of the table. */
	for (int i = 0; i < 2; i++) {
		ck_assert(mountinfo_has_device(table, makedev(0, 49)));
		ck_assert(mountinfo_has_device(table, makedev(0, 40)));
		ck_assert(mountinfo_has_device(table, makedev(8, 1)));
		ck_assert(!mountinfo_has_device(table, makedev(0, 46)));
		ck_assert(!mountinfo_has_device(table, makedev(0, 4)));
		ck_assert(!mountinfo_has_device(table, makedev(0, 0)));
		ck_assert(!mountinfo_has_device(table, makedev(1, 8)));
	}
	fclose(table);
}
END_TEST

static bool kernel_has(const char *path, const char *prefix)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	bool found = mountinfo_find(table, path, prefix);

	fclose(table);
	return found;
}

START_TEST(reads_the_running_kernel)
{
	ck_assert(kernel_has("/proc", "proc"));
	ck_assert(kernel_has("/proc", ""));
	ck_assert(!kernel_has("/proc", "fuse"));
	ck_assert(!kernel_has("/proc/self", ""));
}
END_TEST

START_TEST(a_mapping_of_a_file)
{
	struct maps_line line = maps_line_parse(
	    "7f0c54000000-7f0c54400000 r--s 00200000 00:2f 4711   /mnt/gpu0/a b (deleted)\n");

	ck_assert_uint_eq(line.start, 0x7f0c54000000);
	ck_assert_uint_eq(line.end, 0x7f0c54400000);
	ck_assert_uint_eq(line.offset, 0x200000);
	ck_assert_uint_eq(line.device, makedev(0, 0x2f));
	ck_assert_uint_eq(line.inode, 4711);
	ck_assert_str_eq(line.path, "/mnt/gpu0/a b (deleted)\n");
}
END_TEST

START_TEST(a_mapping_of_no_file)
{
	static const char *const lines[] = {
	    "7ffc1000-7ffc2000 rw-p 00000000 00:00 0   [stack]\n",
	    "7ffc1000-7ffc2000 rw-p 00000000 00:00 0\n",
	    "7ffc1000",
	    "no line of maps",
	    "",
	};

	for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		ck_assert_uint_eq(maps_line_parse(lines[i]).inode, 0);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("mounts", &tests, 60);

	tcase_add_loop_test(tests, finds_what_is_mounted, 0, sizeof(cases) / sizeof(cases[0]));
	tcase_add_test(tests, whose_mount_and_which);
	tcase_add_test(tests, options_of_the_last_mount);
	tcase_add_test(tests, which_devices_are_mounted);
	tcase_add_test(tests, reads_the_running_kernel);
	tcase_add_test(tests, a_mapping_of_a_file);
	tcase_add_test(tests, a_mapping_of_no_file);
	return unit_main(suite);
}
