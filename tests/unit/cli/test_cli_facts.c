/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The readers of gpumem: the mount table, .gpumem/, layouts, sums, versions. */
#include "client/cli/core/facts.h"

#include <string.h>
#include <unistd.h>

#include "client/cli/core/layout.h"
#include "client/cli/core/mounts.h"
#include "client/cli/doctor/doctor.h"
#include "client/cli/hash/hash.h"
#include "tests/unit/unit.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const char mount_table[] =
    "22 1 8:1 / / rw - ext4 /dev/root rw\n"
    "30 22 0:50 / /mnt/gpu\\040mem rw,nosuid shared:5 - fuse.gpumemfs gpumem rw\n"
    "31 22 0:50 /gpu0/team /srv/team rw master:1 shared:2 - fuse.gpumemfs gpumem rw\n"
    "32 22 0:51 /gpu1 /srv/alone rw - fuse.gpumemfs gpumem rw\n"
    "33 30 0:52 / /mnt/gpu\\040mem/gpu0/inner rw - fuse.gpumemfs gpumem:host rw\n"
    "34 22 0:53 / /mnt/other rw - fuse.sshfs gpumem rw\n"
    "half a line\n";

static struct mounts table(void)
{
	FILE *file = fmemopen((void *)mount_table, sizeof(mount_table) - 1, "r");
	struct mounts mounts;

	ck_assert_int_eq(mounts_read(file, &mounts), 0);
	fclose(file);
	return mounts;
}

static const struct {
	const char *path, *where, *inside, *whole;
} places[] = {
    {"/mnt/gpu mem", "/mnt/gpu mem", "/", "/mnt/gpu mem"},
    {"/mnt/gpu mem/gpu0/x", "/mnt/gpu mem", "/gpu0/x", "/mnt/gpu mem"},
    {"/mnt/gpu mem/gpu0/inner/y", "/mnt/gpu mem/gpu0/inner", "/y", "/mnt/gpu mem/gpu0/inner"},
    {"/mnt/gpu memory", NULL, NULL, NULL},
    {"/srv/team", "/srv/team", "/gpu0/team", "/mnt/gpu mem"},
    {"/srv/team/z", "/srv/team", "/gpu0/team/z", "/mnt/gpu mem"},
    {"/srv/alone/z", "/srv/alone", "/gpu1/z", NULL},
    {"/mnt/other/x", NULL, NULL, NULL},
    {"/", NULL, NULL, NULL},
};

START_TEST(paths_are_found_on_their_mounts)
{
	struct mounts mounts = table();
	char *inside = NULL;
	const struct mount_at *mount = mounts_of(&mounts, places[_i].path, &inside);

	ck_assert_uint_eq(mounts.count, 4);
	ck_assert_int_eq(!mount, !places[_i].where);
	if (mount) {
		const struct mount_at *whole = mounts_whole(&mounts, mount);

		ck_assert_str_eq(mount->mountpoint, places[_i].where);
		ck_assert_str_eq(inside, places[_i].inside);
		ck_assert_int_eq(!whole, !places[_i].whole);
		if (whole)
			ck_assert_str_eq(whole->mountpoint, places[_i].whole);
	}
	free(inside);
	mounts_free(&mounts);
}
END_TEST

START_TEST(roots_are_found_by_path_and_number)
{
	struct mounts mounts = table();

	ck_assert_ptr_eq(mounts_at(&mounts, "/srv/team", 31), &mounts.at[1]);
	ck_assert_ptr_null(mounts_at(&mounts, "/srv/team", 30));
	ck_assert_ptr_null(mounts_at(&mounts, "/srv/team/x", 31));
	ck_assert_ptr_null(mounts_at(&mounts, "/mnt/other", 34));
	mounts_free(&mounts);
}
END_TEST

START_TEST(lines_are_found_by_name)
{
	static const char text[] =
	    "backend cuda\nio_uring off: no\ngpu0.bar none: x\ngpu0.bar_budget 5\n";
	static const char *const wanted[][2] = {{"backend", "cuda"},
						{"io_uring", "off: no"},
						{"gpu0.bar", "none: x"},
						{"gpu0.bar_budget", "5"},
						{"io", NULL},
						{"cuda", NULL}};

	for (int i = 0; i < COUNT(wanted); i++) {
		char *line = facts_line(text, wanted[i][0]);

		if (wanted[i][1])
			ck_assert_str_eq(line, wanted[i][1]);
		else
			ck_assert_ptr_null(line);
		free(line);
	}
}
END_TEST

START_TEST(below_is_by_whole_names)
{
	ck_assert(facts_is_below("/gpu0/a", "/gpu0"));
	ck_assert(facts_is_below("/gpu0", "/gpu0"));
	ck_assert(facts_is_below("/gpu0", "/"));
	ck_assert(!facts_is_below("/gpu01/a", "/gpu0"));
	ck_assert(!facts_is_below("/gpu", "/gpu0"));
	ck_assert(!facts_is_below("/gpu0/odd?", "/gpu0/odd\xff"));
	ck_assert(!facts_is_below("/gpu0/odd?", "/gpu0/oddx"));
}
END_TEST

START_TEST(own_command_is_known)
{
	char *command = facts_command(getpid()), *none = facts_command(INT32_MAX);

	ck_assert_ptr_nonnull(strstr(command, "test_cli_facts"));
	ck_assert_str_eq(none, "?");
	free(command);
	free(none);
}
END_TEST

START_TEST(layouts_are_read_and_drawn)
{
	struct layout_list layout;
	char text[OUTPUT_BAR_BYTES(8)];

	ck_assert_int_eq(layout_read("0 100 0 chunk\n100 100 0 chunk\n300 100 64 block\n", &layout),
			 0);
	ck_assert_uint_eq(layout.count, 3);
	ck_assert_uint_eq(layout_bytes(&layout), 300);
	ck_assert_uint_eq(layout.at[2].chunk_offset, 64);
	ck_assert_str_eq(layout_draw(&layout, 400, 8, OUTPUT_ASCII, text), "##==  ::");
	ck_assert_str_eq(layout_draw(&layout, 400, 8, OUTPUT_UNICODE, text), "██▓▓  ░░");
	ck_assert_str_eq(layout_draw(&layout, 800, 8, OUTPUT_ASCII, text), "#= :    ");
	layout_free(&layout);
	ck_assert_int_eq(layout_read("", &layout), 0);
	ck_assert_str_eq(layout_draw(&layout, 0, 8, OUTPUT_ASCII, text), "");
	layout_free(&layout);
}
END_TEST

static const char *const bad_layouts[] = {
    "0 100 0",
    "0 100 chunk",
    "x 1 0 chunk",
    "1 18446744073709551615 0 chunk",
    "0 1 0 a-kind-that-is-too-long",
    "0 1 0 ",
};

START_TEST(bad_layouts_are_refused)
{
	struct layout_list layout;

	ck_assert_int_eq(layout_read(bad_layouts[_i], &layout), -22);
	ck_assert_ptr_null(layout.at);
}
END_TEST

static const struct {
	const char *word;
	int kind; /* -1: no sum */
	const char *text;
} sums[] = {
    {"0123456789ABCDEF", HASH_64, "0123456789abcdef"},
    {"xxh3:0123456789abcdef", HASH_64, "0123456789abcdef"},
    {"XXH3_0123456789abcdef", HASH_64, "0123456789abcdef"},
    {"0123456789abcdef0123456789abcdef", HASH_128, "0123456789abcdef0123456789abcdef"},
    {"0123456789abcde", -1, NULL},
    {"0123456789abcdeg", -1, NULL},
    {"md5:0123456789abcdef", -1, NULL},
    {"", -1, NULL},
};

START_TEST(sums_are_read)
{
	char text[HASH_TEXT_MAX];
	enum hash_kind kind;
	int error = hash_parse(sums[_i].word, &kind, text);

	ck_assert_int_eq(error, sums[_i].kind < 0 ? -22 : 0);
	if (!error) {
		ck_assert_int_eq((int)kind, sums[_i].kind);
		ck_assert_str_eq(text, sums[_i].text);
	}
}
END_TEST

/* Any number of threads computes the same sum, also at the ends of blocks. */
START_TEST(files_are_hashed_in_order)
{
	static const size_t lengths[] = {0, 1, 1 << 20, (1 << 20) + 1, 7 << 20, (9 << 20) - 1};
	size_t length = lengths[_i];
	uint64_t state = unit_seed(), bytes;
	char *data = malloc(length + 1), wanted[HASH_TEXT_MAX], got[HASH_TEXT_MAX];
	FILE *file = tmpfile();

	unit_fill(data, length, &state);
	ck_assert_uint_eq(fwrite(data, 1, length, file), length);
	fflush(file);
	snprintf(wanted, sizeof(wanted), "%016" PRIx64, hash_bytes(data, length));
	for (unsigned threads = 1; threads <= 5; threads++) {
		ck_assert_int_eq(hash_file(fileno(file), HASH_64, threads, got, &bytes), 0);
		ck_assert_str_eq(got, wanted);
		ck_assert_uint_eq(bytes, length);
	}
	ck_assert_int_eq(hash_file(-1, HASH_64, 3, got, &bytes), -9);
	fclose(file);
	free(data);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("cli_facts", &tests, 60);

	tcase_add_loop_test(tests, paths_are_found_on_their_mounts, 0, COUNT(places));
	tcase_add_test(tests, roots_are_found_by_path_and_number);
	tcase_add_test(tests, lines_are_found_by_name);
	tcase_add_test(tests, below_is_by_whole_names);
	tcase_add_test(tests, own_command_is_known);
	tcase_add_test(tests, layouts_are_read_and_drawn);
	tcase_add_loop_test(tests, bad_layouts_are_refused, 0, COUNT(bad_layouts));
	tcase_add_loop_test(tests, sums_are_read, 0, COUNT(sums));
	tcase_add_loop_test(tests, files_are_hashed_in_order, 0, 6);
	return unit_main(suite);
}
