/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Compares tables of docs/ and of CONTRIBUTING.md with the checkout in both directions: the
 * folders, the locks, the budgets of test steps. */
#include "tests/unit/docs.h"

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

/* For a line like "pthread_mutex_t lock;" sets name, and returns the name's length; otherwise 0. */
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

/* "name {": "name."; "{", a struct without a name: "". */
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

/* Reads "[lint]=150 [unit]=50", without the steps that are parts of check-quick. */
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

int main(void)
{
	FILE *order = page_open(ORDER);
	TCase *tests;
	Suite *suite = unit_suite("docs_tables", &tests, 60);

	if (order) {
		tcase_add_test(tests, folders_agree);
		tcase_add_test(tests, locks_agree);
		tcase_add_test(tests, budgets_agree);
	}
	int status = unit_main(suite);

	return page_closed(order, ORDER, status);
}
