/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of the mount's options in docs/operations.md, compared with the options both ways. */
#include "fs/core/options_table.h"
#include "tests/unit/page.h"
#include "tests/unit/unit.h"

#define PAGE	   "docs/operations.md"
#define TABLE_HEAD "| option | default | meaning |\n"

#define NAMES_MAX 64
#define CELL_MAX  128

/* `NAME`, `NAME=` or `NAME=VALUES`, and the cell with the defaults of its row. */
struct shown {
	char name[CELL_MAX], values[CELL_MAX], defaults[CELL_MAX];
};

static struct shown all[NAMES_MAX];
static unsigned count;

/* Copies the text up to an end that has no backslash before it, and without backslashes; returns
 * what follows that end. */
static const char *cut(const char *text, char end, char cell[CELL_MAX])
{
	size_t length = 0;

	for (; *text && *text != end; text++) {
		if (*text == '\\')
			text++;
		ck_assert_uint_lt(length, CELL_MAX - 1);
		cell[length++] = *text;
	}
	cell[length] = '\0';
	return *text ? text + 1 : text;
}

/* "| `name=values` `name=` | default, default | meaning |" */
static void row_read(const char *line)
{
	unsigned first = count;
	char item[CELL_MAX];

	for (line += strlen("| "); *line == '`'; line += strspn(line, " ")) {
		line = cut(line + 1, '`', item);
		char *values = strchr(item, '=');

		ck_assert_uint_lt(count, NAMES_MAX);
		if (values)
			*values++ = '\0';
		strcpy(all[count].name, item);
		strcpy(all[count++].values, values ? values : "");
	}
	ck_assert_int_eq(*line, '|');
	cut(line + 1, '|', item);
	while (first < count)
		strcpy(all[first++].defaults, item);
}

static void table_read(FILE *page)
{
	char line[512];

	while (fgets(line, sizeof(line), page) && strcmp(line, TABLE_HEAD) != 0)
		;
	while (fgets(line, sizeof(line), page) && *line == '|')
		if (strncmp(line, "| `", 3) == 0)
			row_read(line);
}

static const struct shown *shown_find(const char *name)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(all[i].name, name) == 0)
			return &all[i];
	return NULL;
}

static bool lists(const char *cell, const char *wanted)
{
	char copy[CELL_MAX], *rest;

	strcpy(copy, cell);
	for (char *one = strtok_r(copy, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
		size_t length;

		one += strspn(one, " ");
		length = strcspn(one, " ");
		if (length == strlen(wanted) && memcmp(one, wanted, length) == 0)
			return true;
	}
	return false;
}

static void compare(const struct option_row *row)
{
	const struct shown *shown = shown_find(row->name);

	ck_assert_msg(shown, "operations.md lacks %s", row->name);
	if (*shown->values)
		ck_assert_str_eq(shown->values, row->values);
	if (row->fallback)
		ck_assert_msg(lists(shown->defaults, row->fallback),
			      "%s: the default is %s, operations.md has '%s'", row->name,
			      row->fallback, shown->defaults);
}

START_TEST(options_table_agrees)
{
	FILE *page = page_open(PAGE);

	ck_assert_ptr_nonnull(page);
	table_read(page);
	fclose(page);
	for (unsigned i = 0; option_at(i); i++)
		compare(option_at(i));
	for (unsigned i = 0; i < count; i++)
		ck_assert_msg(option_find(all[i].name, strlen(all[i].name)),
			      "operations.md invents %s", all[i].name);
}
END_TEST

int main(void)
{
	FILE *page = page_open(PAGE);
	TCase *tests;
	Suite *suite = unit_suite("docs", &tests, 60);

	if (page)
		tcase_add_test(tests, options_table_agrees);
	int status = unit_main(suite);

	return page_closed(page, PAGE, status);
}
