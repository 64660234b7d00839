/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Replacing files where other users may make names, and move files meanwhile. As root. */
#include "client/lib/replace.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/lib/gpumem.h"
#include "tests/unit/unit.h"

#define OTHER 65534
#define SKIP  77

static const char header[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[10],\"data_offsets\":[0,10]}}";
static char folder[] = "/tmp/gpumem-replace-XXXXXX";

/* Whether the next openat(2) of a folder moves another file to the name "file". */
static bool swaps;

/* Replaces libc's function. */
int openat(int at, const char *name, int flags, ...)
{
	va_list arguments;

	va_start(arguments, flags);
	mode_t mode =
	    flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	if (swaps)
		ck_assert_int_eq(rename("other", "file"), 0);
	swaps = false;
	return (int)syscall(SYS_openat, at, name, flags, mode);
}

/* Writes a safetensors file. */
static void put(const char *name, uid_t uid, mode_t mode, const char *data)
{
	const uint64_t length = htole64(strlen(header));
	FILE *file = fopen(name, "we");

	ck_assert_ptr_nonnull(file);
	fwrite(&length, sizeof(length), 1, file);
	fprintf(file, "%s%s", header, data);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chown(name, uid, uid), 0);
	ck_assert_int_eq(chmod(name, mode), 0);
}

static void enter(void)
{
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	umask(022);
}

static void leave(void)
{
	static const char *const names[] = {"file", "other", "link", "secret"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(names[i]);
	ck_assert_int_eq(rmdir(folder), 0);
}

static void expect(const char *name, uid_t uid, mode_t mode)
{
	struct stat st;

	ck_assert_int_eq(lstat(name, &st), 0);
	ck_assert_uint_eq(st.st_uid, uid);
	ck_assert_uint_eq(st.st_gid, uid);
	ck_assert_uint_eq(st.st_mode, S_IFREG | mode);
}

static void create(const char *name, mode_t mode)
{
	struct client_replace replace;

	ck_assert_int_eq(client_replace_begin(name, mode, CLIENT_REPLACE_FILE, NULL, &replace), 0);
	ck_assert_int_eq(client_replace_finish(&replace), 0);
}

START_TEST(align_keeps_the_owner)
{
	put("file", OTHER, 0640, "0123456789");
	ck_assert_int_eq(gpumem_align("file", "file", 256, NULL), 0);
	expect("file", OTHER, 0640);
	ck_assert_int_eq(chmod(folder, 01777), 0);
	put("other", OTHER, 0602, "0123456789");
	ck_assert_int_eq(gpumem_align("other", "other", 256, NULL), 0);
	expect("other", OTHER, 0602);
}
END_TEST

/* A file that another user has made ahead does not say who may read and write the new file. */
START_TEST(foreign_modes_are_not_kept)
{
	put("file", OTHER, 0666, "");
	create("file", 0600);
	expect("file", 0, 0666); /* in a folder of this user */
	ck_assert_int_eq(chmod(folder, 01777), 0);
	put("file", OTHER, 0666, "");
	create("file", 0600);
	expect("file", 0, 0600);
	ck_assert_int_eq(chmod("file", 0640), 0);
	create("file", 0600);
	expect("file", 0, 0640);
	put("secret", 0, 0600, "0123456789");
	put("other", OTHER, 0666, "");
	ck_assert_int_eq(gpumem_align("secret", "other", 256, NULL), 0);
	expect("other", 0, 0600);
}
END_TEST

START_TEST(foreign_links_are_not_followed)
{
	put("secret", 0, 0600, "0123456789");
	ck_assert_int_eq(chmod(folder, 01777), 0);
	ck_assert_int_eq(symlink("secret", "link"), 0);
	create("link", 0600);
	ck_assert_int_eq(lchown("link", OTHER, OTHER), 0);
	struct client_replace replace;

	ck_assert_int_eq(client_replace_begin("link", 0600, CLIENT_REPLACE_FILE, NULL, &replace),
			 -EACCES);
	ck_assert_int_eq(client_replace_begin("link", 0600, CLIENT_REPLACE_NOTHING, NULL, &replace),
			 -EEXIST);
	ck_assert_int_eq(chmod(folder, 0755), 0);
	create("link", 0600);
}
END_TEST

/* The bytes of a file that was opened must not get into another file with the modes of that. */
START_TEST(align_notices_another_file)
{
	struct stat st;

	put("file", 0, 0600, "of root...");
	put("other", OTHER, 0666, "0123456789");
	swaps = true;
	ck_assert_int_eq(gpumem_align("file", "file", 256, NULL), -1);
	ck_assert_int_eq(errno, ESTALE);
	ck_assert_int_eq(stat("file", &st), 0);
	ck_assert_int_eq(st.st_size, 8 + (off_t)strlen(header) + 10);
	expect("file", OTHER, 0666);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("client_replace", &tcase, 60);

	if (geteuid() != 0) {
		puts("not root");
		return SKIP;
	}
	tcase_add_checked_fixture(tcase, enter, leave);
	tcase_add_test(tcase, align_keeps_the_owner);
	tcase_add_test(tcase, foreign_modes_are_not_kept);
	tcase_add_test(tcase, foreign_links_are_not_followed);
	tcase_add_test(tcase, align_notices_another_file);
	return unit_main(suite);
}
