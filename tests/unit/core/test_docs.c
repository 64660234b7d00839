/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What people read, compared with the code: the table of the mount's options both ways, and in a
 * checkout the folders, the locks, the budgets of tests, the options, the paths, the identifiers,
 * the manual pages and the links that README.md, docs/ and the pages beside README.md name. */
#include <ctype.h>
#include <glob.h>
#include <unistd.h>

#include "fs/core/attribute_schema.h"
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

/* --- sets of texts */

#define TEXTS_MAX 256

struct texts {
	char at[TEXTS_MAX][CELL_MAX];
	unsigned count;
};

static bool texts_have(const struct texts *texts, const char *text)
{
	for (unsigned i = 0; i < texts->count; i++)
		if (strcmp(texts->at[i], text) == 0)
			return true;
	return false;
}

static void texts_add(struct texts *texts, const char *text, size_t length)
{
	ck_assert_uint_lt(texts->count, TEXTS_MAX);
	ck_assert_uint_lt(length, CELL_MAX);
	memcpy(texts->at[texts->count], text, length);
	texts->at[texts->count++][length] = '\0';
}

static void texts_compare(const struct texts *page, const char *name, const struct texts *code)
{
	for (unsigned i = 0; i < code->count; i++)
		ck_assert_msg(texts_have(page, code->at[i]), "%s lacks %s", name, code->at[i]);
	for (unsigned i = 0; i < page->count; i++)
		ck_assert_msg(texts_have(code, page->at[i]), "%s names %s, which the code lacks",
			      name, page->at[i]);
}

/* --- docs/architecture.md: a row for each folder of scripts/order */

#define ORDER	     "scripts/order"
#define ARCHITECTURE "docs/architecture.md"

static void order_read(struct texts *folders)
{
	FILE *order = page_open(ORDER);
	char line[512], *rest;

	ck_assert_ptr_nonnull(order);
	while (fgets(line, sizeof(line), order)) {
		if (strncmp(line, "order ", 6) != 0)
			continue;
		for (char *word = strtok_r(line + 6, " >|\n", &rest); word;
		     word = strtok_r(NULL, " >|\n", &rest))
			if (!texts_have(folders, word))
				texts_add(folders, word, strlen(word));
	}
	fclose(order);
}

/* The texts in backquotes of a row's first cells. */
static unsigned cells_read(const char *line, char cells[][CELL_MAX], unsigned most)
{
	unsigned n = 0;

	while (n < most && strncmp(line, "| `", 3) == 0) {
		line = cut(line + 3, '`', cells[n++]);
		line += strspn(line, " ");
	}
	return n;
}

START_TEST(folders_agree)
{
	static struct texts folders, rows;
	FILE *page = page_open(ARCHITECTURE);
	char line[2048], folder[1][CELL_MAX];

	ck_assert_ptr_nonnull(page);
	while (fgets(line, sizeof(line), page))
		if (cells_read(line, folder, 1))
			texts_add(&rows, folder[0], strlen(folder[0]));
	fclose(page);
	order_read(&folders);
	ck_assert_uint_gt(folders.count, 10);
	texts_compare(&rows, ARCHITECTURE, &folders);
}
END_TEST

/* --- docs/locking.md: a row "| `struct.member` | `file` |" for each lock */

#define LOCKING "docs/locking.md"

static const char *const sources[] = {
    "fs/*/*.[ch]",	 "backend/*.[ch]",    "backend/*/*.[ch]",      "client/core/*.[ch]",
    "client/gpu/*.[ch]", "client/lib/*.[ch]", "client/preload/*.[ch]", "common/*.[ch]"};
static const char *const lock_types[] = {"pthread_mutex_t ", "pthread_rwlock_t ", "struct brlock "};

static const char *lock_type_skip(const char *text)
{
	for (unsigned i = 0; i < sizeof(lock_types) / sizeof(lock_types[0]); i++)
		if (strncmp(text, lock_types[i], strlen(lock_types[i])) == 0)
			return text + strlen(lock_types[i]);
	return NULL;
}

static const char *prefix_skip(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0 ? text + strlen(prefix) : text;
}

/* "pthread_mutex_t lock;" and the like: the name's length, or 0. */
static size_t lock_declared(const char *line, const char **name)
{
	const char *at = line + strspn(line, "\t");

	at = prefix_skip(at, "static ");
	if (strncmp(at, "_Alignas(", 9) == 0 && strchr(at, ')'))
		at = strchr(at, ')') + 2;
	at = lock_type_skip(at);
	if (!at)
		return 0;
	size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789");

	*name = at;
	return strchr(";[ ", at[length]) ? length : 0;
}

/* "name {": "name."; "{", of a struct without a name: nothing. */
static void type_read(const char *text, char type[CELL_MAX])
{
	int length = (int)strcspn(text, " {");

	snprintf(type, CELL_MAX, "%.*s%s", length, text, length ? "." : "");
}

static void locks_of_file(const char *path, const char *file, void *locks)
{
	FILE *source = fopen(path, "re");
	char line[512], type[CELL_MAX] = "", lock[2 * CELL_MAX + PATH_MAX];
	const char *name;

	ck_assert_ptr_nonnull(source);
	while (fgets(line, sizeof(line), source)) {
		const char *at = prefix_skip(line, "static ");
		size_t length;

		if (strncmp(at, "struct ", 7) == 0 && strstr(at, " {\n"))
			type_read(at + strlen("struct "), type);
		else if (*line == '}')
			*type = '\0';
		length = lock_declared(line, &name);
		if (!length)
			continue;
		snprintf(lock, sizeof(lock), "%s%.*s in %s", type, (int)length, name, file);
		texts_add(locks, lock, strlen(lock));
	}
	fclose(source);
}

/* Each source of the daemon and the libraries: its path, and its name in the checkout. */
static void sources_each(void (*each)(const char *path, const char *file, void *context),
			 void *context)
{
	char pattern[PATH_MAX], root[PATH_MAX];
	glob_t found;

	page_path("", root);
	for (unsigned i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		page_path(sources[i], pattern);
		ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
		for (size_t n = 0; n < found.gl_pathc; n++)
			each(found.gl_pathv[n], found.gl_pathv[n] + strlen(root), context);
		globfree(&found);
	}
}

START_TEST(locks_agree)
{
	static struct texts locks, rows;
	FILE *page = page_open(LOCKING);
	char line[2048], cells[2][CELL_MAX], row[2 * CELL_MAX + 8];

	ck_assert_ptr_nonnull(page);
	while (fgets(line, sizeof(line), page)) {
		if (cells_read(line, cells, 2) != 2)
			continue;
		snprintf(row, sizeof(row), "%s in %s", cells[0], cells[1]);
		texts_add(&rows, row, strlen(row));
	}
	fclose(page);
	sources_each(locks_of_file, &locks);
	ck_assert_uint_gt(locks.count, 40);
	texts_compare(&rows, LOCKING, &locks);
}
END_TEST

/* --- CONTRIBUTING.md: a row "| `make check-STEP` | N s |" for each step of scripts/check */

#define CONTRIBUTING "CONTRIBUTING.md"
#define CHECK	     "scripts/check"

/* "make lint", "make check-unit", "make check": lint, unit, all. NULL: no step. */
static const char *step_of(const char *command)
{
	const char *name = prefix_skip(command, "make ");

	if (strcmp(name, "check") == 0)
		return "all";
	return strcmp(name, "lint") == 0 || strncmp(name, "check-", 6) == 0
		   ? prefix_skip(name, "check-")
		   : NULL;
}

static void budgets_of_page(struct texts *budgets)
{
	FILE *page = page_open(CONTRIBUTING);
	char line[2048], command[1][CELL_MAX], text[2 * CELL_MAX];
	unsigned seconds;

	ck_assert_ptr_nonnull(page);
	while (fgets(line, sizeof(line), page)) {
		const char *cell = strstr(line, "` | "), *step;

		if (!cell || !cells_read(line, command, 1) || !(step = step_of(command[0])) ||
		    sscanf(cell, "` | %u s |", &seconds) != 1)
			continue;
		snprintf(text, sizeof(text), "%s in %u s", step, seconds);
		texts_add(budgets, text, strlen(text));
	}
	fclose(page);
}

/* "[lint]=150 [unit]=50": but for the steps that are parts of check-quick. */
static void budgets_of_line(const char *line, struct texts *budgets)
{
	char step[CELL_MAX], text[2 * CELL_MAX];
	unsigned seconds;

	for (; (line = strchr(line, '[')); line++) {
		if (sscanf(line, "[%31[a-z-]]=%u", step, &seconds) != 2 ||
		    strcmp(step, "build") == 0 || strcmp(step, "changed") == 0 ||
		    strcmp(step, "mount-quick") == 0)
			continue;
		snprintf(text, sizeof(text), "%s in %u s", step, seconds);
		texts_add(budgets, text, strlen(text));
	}
}

START_TEST(budgets_agree)
{
	static struct texts rows, budgets;
	FILE *script = page_open(CHECK);
	char line[512];

	ck_assert_ptr_nonnull(script);
	while (fgets(line, sizeof(line), script) && strcmp(line, "declare -A budget=(\n") != 0)
		;
	while (fgets(line, sizeof(line), script) && strcmp(line, ")\n") != 0)
		budgets_of_line(line, &budgets);
	fclose(script);
	ck_assert_uint_gt(budgets.count, 5);
	budgets_of_page(&rows);
	texts_compare(&rows, CONTRIBUTING, &budgets);
}
END_TEST

/* --- all pages: what stands in backquotes, and links */

static const char *const pages[] = {
    "README.md",	  "CONTRIBUTING.md",	  "SECURITY.md",
    "CHANGELOG.md",	  "docs/architecture.md", "docs/locking.md",
    "docs/data-path.md",  "docs/recovery.md",	  "docs/performance.md",
    "docs/operations.md", "docs/new-backend.md",
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

/* "gpumem(7)" and its like, of which the name begins in this project's way. */
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

/* Also of attributes and options: all stand in the code. */
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

static void checkout_tests(TCase *tests)
{
	tcase_add_test(tests, folders_agree);
	tcase_add_test(tests, locks_agree);
	tcase_add_test(tests, budgets_agree);
	tcase_add_loop_test(tests, links_lead_somewhere, 0, PAGES);
	tcase_add_loop_test(tests, what_is_quoted_exists, 0, PAGES);
	tcase_add_loop_test(tests, manual_pages_exist, 0, PAGES);
	tcase_add_loop_test(tests, identifiers_exist, 0, PAGES);
}

int main(void)
{
	FILE *page = page_open(PAGE), *order = page_open(ORDER);
	TCase *tests;
	Suite *suite = unit_suite("docs", &tests, 60);

	if (page)
		tcase_add_test(tests, options_table_agrees);
	if (order) {
		fclose(order);
		checkout_tests(tests);
	}
	int status = unit_main(suite);

	return page_closed(page, PAGE, status);
}
