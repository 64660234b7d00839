/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Compares the documentation with the code: the table of the mount's options in both directions,
 * and in a checkout the options, attributes, paths, identifiers, manual pages and links in
 * README.md, docs/ and the pages beside README.md. */
#include <ctype.h>
#include <unistd.h>

#include "fs/core/attribute_schema.h"
#include "fs/options/table.h"
#include "tests/unit/docs.h"

#define PAGE	   "docs/operations.md"
#define TABLE_HEAD "| option | default | meaning |\n"

#define NAMES_MAX 64

/* A row's `NAME`, `NAME=` or `NAME=VALUES`, and the cell with the row's defaults. */
struct shown {
	char name[CELL_MAX], values[CELL_MAX], defaults[CELL_MAX];
};

static struct shown all[NAMES_MAX];
static unsigned count;

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

/* --- all pages: texts in backquotes, and links */

static const char *const pages[] = {
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "docs/architecture.md",
    "docs/locking.md",
    "docs/data-path.md",
    "docs/recovery.md",
    "docs/performance.md",
    "docs/operations.md",
    "docs/new-backend.md",
    "docs/frameworks.md",
    "docs/known-issues.md",
    "docs/compatibility.md",
    "docs/glossary.md",
};
#define PAGES ((int)(sizeof(pages) / sizeof(pages[0])))

#define PAGE_BYTES_MAX (64UL << 10)

static char *page_read(const char *name)
{
	static char text[PAGE_BYTES_MAX];
	FILE *page = page_open(name);

	ck_assert_msg(page, "no %s", name);
	size_t length = fread(text, 1, sizeof(text) - 1, page);

	ck_assert_uint_lt(length, sizeof(text) - 1);
	text[length] = '\0';
	fclose(page);
	return text;
}

static void check_exists(const char *page, const char *name)
{
	char path[PATH_MAX];

	page_path(name, path);
	ck_assert_msg(access(path, F_OK) == 0, "%s names %s, which is not there", page, name);
}

/* "[text](path#part)", relative to the page's folder. */
static void link_check(const char *page, const char *target)
{
	const char *slash = strrchr(page, '/');
	char name[CELL_MAX];

	if (strncmp(target, "http", 4) == 0)
		return;
	snprintf(name, sizeof(name), "%.*s%.*s", slash ? (int)(slash + 1 - page) : 0, page,
		 (int)strcspn(target, ")#"), target);
	check_exists(page, name);
}

START_TEST(links_lead_somewhere)
{
	const char *page = pages[_i];

	for (char *at = page_read(page); (at = strstr(at, "](")); at += 2)
		link_check(page, at + 2);
}
END_TEST

static bool is_path(const char *text, size_t length)
{
	static const char *const roots[] = {"fs/",    "backend/", "client/", "common/",
					    "tests/", "scripts/", "man/",    "docs/"};

	for (unsigned i = 0; i < sizeof(roots) / sizeof(roots[0]); i++)
		if (strncmp(text, roots[i], strlen(roots[i])) == 0)
			return strspn(text, "abcdefghijklmnopqrstuvwxyz"
					    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./@-") == length;
	return false;
}

/* "name=value": an option of the mount or an attribute. */
static void assignment_check(const char *page, const char *text)
{
	size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz_.");
	char attribute[2 * CELL_MAX];

	if (!length || text[length] != '=')
		return;
	snprintf(attribute, sizeof(attribute), ATTRIBUTES_PREFIX "%.*s", (int)length, text);
	ck_assert_msg(option_find(text, length) || attributes_find(attribute) >= 0,
		      "%s: %.*s= is neither an option nor an attribute", page, (int)length, text);
}

START_TEST(what_is_quoted_exists)
{
	const char *page = pages[_i];
	char *text = page_read(page);

	for (char *at = strchr(text, '`'); at; at = strchr(at, '`')) {
		size_t length = strcspn(++at, "`");
		char name[CELL_MAX];

		if (is_path(at, length)) {
			snprintf(name, sizeof(name), "%.*s", (int)length, at);
			check_exists(page, name);
		}
		assignment_check(page, at);
		at += length;
		at += *at == '`';
	}
}
END_TEST

/* "gpumem(7)" and other pages with a name that begins like the project's. */
static void reference_check(const char *page, const char *text, const char *paren)
{
	const char *start = paren;
	char name[CELL_MAX];

	while (start > text && (islower((unsigned char)start[-1]) || start[-1] == '-'))
		start--;
	if (strncmp(start, "gpumem", 6) != 0 && strncmp(start, "libgpumem", 9) != 0)
		return;
	snprintf(name, sizeof(name), "man/%.*s.%c", (int)(paren - start), start, paren[1]);
	check_exists(page, name);
}

START_TEST(manual_pages_exist)
{
	const char *page = pages[_i];
	char *text = page_read(page);

	for (char *at = text; (at = strchr(at, '(')); at++)
		if (isdigit((unsigned char)at[1]) && at[2] == ')')
			reference_check(page, text, at);
}
END_TEST

/* --- all pages: identifiers in backquotes */

#define CODE_BYTES_MAX (8UL << 20)

static struct {
	char *text;
	size_t length;
} code;

static void code_append(const char *path, const char *file, void *context)
{
	FILE *source = fopen(path, "re");

	(void)file, (void)context;
	ck_assert_ptr_nonnull(source);
	code.length += fread(code.text + code.length, 1, CODE_BYTES_MAX - 1 - code.length, source);
	ck_assert_uint_lt(code.length, CODE_BYTES_MAX - 1);
	code.text[code.length] = '\0';
	fclose(source);
}

static bool is_identifier(const char *word)
{
	size_t length =
	    strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

	return !word[length] && strchr(word, '_') && isalpha((unsigned char)*word);
}

/* Covers the names of attributes and options too: every name stands in the code. */
START_TEST(identifiers_exist)
{
	const char *page = pages[_i];

	code.text = malloc(CODE_BYTES_MAX);
	ck_assert_ptr_nonnull(code.text);
	code.length = 0;
	sources_each(code_append, NULL);
	for (char *at = strchr(page_read(page), '`'); at; at = strchr(at, '`')) {
		size_t length = strcspn(++at, "`");
		char word[CELL_MAX];

		if (length < CELL_MAX) {
			snprintf(word, sizeof(word), "%.*s", (int)length, at);
			ck_assert_msg(!is_identifier(word) || strstr(code.text, word),
				      "%s names %s, which the code lacks", page, word);
		}
		at += length;
		at += *at == '`';
	}
	free(code.text);
}
END_TEST

int main(void)
{
	FILE *page = page_open(PAGE), *order = page_open("scripts/order");
	TCase *tests;
	Suite *suite = unit_suite("docs", &tests, 60);

	if (page)
		tcase_add_test(tests, options_table_agrees);
	if (order) {
		fclose(order);
		tcase_add_loop_test(tests, links_lead_somewhere, 0, PAGES);
		tcase_add_loop_test(tests, what_is_quoted_exists, 0, PAGES);
		tcase_add_loop_test(tests, manual_pages_exist, 0, PAGES);
		tcase_add_loop_test(tests, identifiers_exist, 0, PAGES);
	}
	int status = unit_main(suite);

	return page_closed(page, PAGE, status);
}
