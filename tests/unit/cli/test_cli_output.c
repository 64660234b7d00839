/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/output/output.h"
#include "client/cli/output/progress.h"
#include "common/system/mounts.h"

#include <pty.h>
#include <string.h>

#include "tests/unit/unit.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const struct {
	uint64_t bytes;
	const char *text;
} sizes[] = {
    {0, "0"},
    {1, "1"},
    {1023, "1023"},
    {1024, "1K"},
    {1536, "1.5K"},
    {10 << 10, "10K"},
    {(1 << 20) - 1, "1M"},
    {UINT64_C(80) << 30, "80G"},
    {UINT64_C(150754820096), "140G"},
    {UINT64_C(3) << 40, "3T"},
    {UINT64_MAX, "16E"},
};

START_TEST(sizes_are_short)
{
	char text[OUTPUT_TEXT_MAX];

	ck_assert_str_eq(output_size(sizes[_i].bytes, text), sizes[_i].text);
}
END_TEST

static const struct {
	double rate;
	const char *text;
} rates[] = {
    {0, "0 B/s"},	   {-5, "0 B/s"},	{999, "999 B/s"},      {1300, "1.30 kB/s"},
    {55.2e9, "55.2 GB/s"}, {210e9, "210 GB/s"}, {1.3e12, "1.30 TB/s"}, {999.9e6, "1.00 GB/s"},
};

START_TEST(rates_have_three_digits)
{
	char text[OUTPUT_TEXT_MAX];

	ck_assert_str_eq(output_rate(rates[_i].rate, text), rates[_i].text);
}
END_TEST

START_TEST(times_are_clocks)
{
	char text[OUTPUT_TEXT_MAX];

	ck_assert_str_eq(output_time(0, text), "0:00");
	ck_assert_str_eq(output_time(7.4, text), "0:07");
	ck_assert_str_eq(output_time(3723, text), "1:02:03");
	ck_assert_str_eq(output_time(-1, text), "-:--");
	ck_assert_str_eq(output_time(1.0 / 0.0, text), "-:--");
}
END_TEST

static const struct {
	uint64_t part, whole;
	const char *ascii, *unicode;
} bars[] = {
    {0, 100, "....", "····"},	  {0, 0, "....", "····"},
    {1, 1000000, "#...", "▏···"}, {50, 100, "##..", "██··"},
    {99, 100, "###.", "███▉"},	  {100, 100, "####", "████"},
    {200, 100, "####", "████"},	  {UINT64_MAX - 1, UINT64_MAX, "###.", "███▉"},
};

START_TEST(bars_show_a_little_and_the_rest)
{
	char text[OUTPUT_BAR_BYTES(4)];

	ck_assert_str_eq(output_bar(bars[_i].part, bars[_i].whole, 4, OUTPUT_ASCII, text),
			 bars[_i].ascii);
	ck_assert_str_eq(output_bar(bars[_i].part, bars[_i].whole, 4, OUTPUT_UNICODE, text),
			 bars[_i].unicode);
	ck_assert_uint_eq(output_width(text), 4);
}
END_TEST

START_TEST(curves_go_by_the_largest)
{
	static const double values[] = {0, 1, 50, 100};
	char text[OUTPUT_BAR_BYTES(4)];

	ck_assert_str_eq(output_curve(values, 4, OUTPUT_UNICODE, text), " ▁▄█");
	ck_assert_str_eq(output_curve(values, 4, OUTPUT_ASCII, text), " .:#");
	ck_assert_str_eq(output_curve(values, 1, OUTPUT_ASCII, text), " ");
	ck_assert_str_eq(output_curve(values, 0, OUTPUT_ASCII, text), "");
}
END_TEST

static const struct {
	const char *text, *escaped;
} names[] = {
    {"weights.bin", "weights.bin"},
    {"two words", "two words"},
    {"a\nb\\c\033[31m", "a\\012b\\134c\\033[31m"},
    {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
    {"no\xff\xc3", "no\\377\\303"},
    {"gr\xc3\xbc\xc3\x9f no\xff", "gr\xc3\xbc\xc3\x9f no\\377"},
    {"csi \xc2\x9b"
     "31m",
     "csi \\302\\23331m"},
    {"\xc2\x80\xc2\x9f\xc2\xa0\x7f", "\\302\\200\\302\\237\xc2\xa0\\177"},
    {"", ""},
};

START_TEST(names_cannot_harm_a_terminal)
{
	char *escaped = output_escape(names[_i].text);

	json_t *json = output_json_text(names[_i].text);

	ck_assert_str_eq(escaped, names[_i].escaped);
	ck_assert_str_eq(json_string_value(json), names[_i].escaped);
	json_decref(json);
	ck_assert_str_eq(octal_unescape(escaped), names[_i].text);
	free(escaped);
}
END_TEST

static char *written(void (*write)(FILE *out))
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	write(out);
	fclose(out);
	return text;
}

static void write_hostile(FILE *out)
{
	static const struct table_column columns[] = {{"ONE", 0}, {"TWO", 0}};
	struct table table = TABLE(columns);

	table_cell(&table, COLOUR_NONE, "%s", "a\nb\033]0;t\a");
	table_cell(&table, COLOUR_NONE,
		   "c\xc2\x9b"
		   "2J\\134");
	table_write(&table, out);
	table_free(&table);
	output_text(out, "%s\n", "d\xc2\x85");
	output_line(out, "%s", "e\r\xfe");
}

START_TEST(what_is_printed_cannot_harm_a_terminal)
{
	char *text = written(write_hostile);

	ck_assert_str_eq(text, "ONE                 TWO\n"
			       "a\\012b\\033]0;t\\007  c\\302\\2332J\\134\n"
			       "d\\302\\205\\012e\\015\\376\n");
	free(text);
}
END_TEST

static const struct table_column columns[] = {{"NAME", 0},
					      {"SIZE", TABLE_RIGHT},
					      {"STATE", TABLE_OPTIONAL},
					      {"KIND", TABLE_OPTIONAL},
					      {"END", 0}};

static void write_table(FILE *out)
{
	static const char *const cells[] = {"ä",      "7",	 "idle", "rw", "x",
					    "longer", "1234567", "busy", "ro", "y"};
	struct table table = TABLE(columns);

	for (int i = 0; i < COUNT(cells); i++)
		table_cell(&table, COLOUR_NONE, "%s", cells[i]);
	table_write(&table, out);
	table_free(&table);
}

START_TEST(tables_line_up)
{
	char *text = written(write_table);

	/* No colours, because the output is no terminal. */
	ck_assert_str_eq(text, "NAME       SIZE  STATE  KIND  END\n"
			       "ä             7  idle   rw    x\n"
			       "longer  1234567  busy   ro    y\n");
	free(text);
}
END_TEST

/* What a terminal of that width gets, up to the end of the first line. */
static void check_heading(unsigned short width, const char *heading)
{
	const struct winsize size = {.ws_row = 24, .ws_col = width};
	char text[4096];
	int shell, terminal;

	ck_assert_int_eq(openpty(&shell, &terminal, NULL, NULL, &size), 0);
	FILE *out = fdopen(terminal, "w");

	write_table(out);
	fflush(out);
	ssize_t n = read(shell, text, sizeof(text) - 1);

	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	ck_assert_str_eq(text, heading);
	fclose(out);
	close(shell);
}

START_TEST(tables_fit_into_a_terminal)
{
	setenv("NO_COLOR", "1", 1);
	check_heading(33, "NAME       SIZE  STATE  KIND  END");
	check_heading(32, "NAME       SIZE  STATE  END");
	check_heading(26, "NAME       SIZE  END");
	check_heading(5, "NAME       SIZE  END");
}
END_TEST

/* The line behind the carriage return, allocated. */
static char *progress_text(unsigned columns)
{
	static const char *const parts[] = {"1.5G of 3G", "12.5 GB/s", "0:07 left"};
	static const char start[] = "\r\033[K";
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	progress_draw(out, columns, 1, 2, parts, COUNT(parts));
	fclose(out);
	ck_assert(strncmp(text, start, strlen(start)) == 0);
	memmove(text, text + strlen(start), strlen(text) - strlen(start) + 1);
	return text;
}

START_TEST(progress_never_wraps)
{
	for (unsigned columns = 0; columns < 120; columns++) {
		char *text = progress_text(columns);
		ck_assert_uint_lt(output_width(text), columns ? columns : 1);
		ck_assert_msg(columns <= 4 || strncmp(text, " 50%", 4) == 0, "%s", text);
		ck_assert_msg(columns <= 16 || strstr(text, "1.5G of 3G"), "%s", text);
		ck_assert_msg(columns <= 38 || strstr(text, "0:07 left"), "%s", text);
		free(text);
	}
}
END_TEST

START_TEST(progress_has_a_bar_where_there_is_room)
{
	char *wide = progress_text(80), *narrow = progress_text(45);

	ck_assert_str_eq(wide, " 50% ############............  1.5G of 3G  12.5 GB/s  0:07 left");
	ck_assert_str_eq(narrow, " 50%  1.5G of 3G  12.5 GB/s  0:07 left");
	free(wide);
	free(narrow);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("cli_output", &tests, 60);

	tcase_add_loop_test(tests, sizes_are_short, 0, COUNT(sizes));
	tcase_add_loop_test(tests, rates_have_three_digits, 0, COUNT(rates));
	tcase_add_test(tests, times_are_clocks);
	tcase_add_loop_test(tests, bars_show_a_little_and_the_rest, 0, COUNT(bars));
	tcase_add_test(tests, curves_go_by_the_largest);
	tcase_add_test(tests, what_is_printed_cannot_harm_a_terminal);
	tcase_add_loop_test(tests, names_cannot_harm_a_terminal, 0, COUNT(names));
	tcase_add_test(tests, tables_line_up);
	tcase_add_test(tests, tables_fit_into_a_terminal);
	tcase_add_test(tests, progress_never_wraps);
	tcase_add_test(tests, progress_has_a_bar_where_there_is_room);
	return unit_main(suite);
}
