/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Compares docs/compatibility.md with the checkout: the attributes, the versions of layouts, and
 * the messages with which an unknown version is refused. */
#include "common/attributes.h"
#include "tests/unit/docs.h"

#define PAGE	"docs/compatibility.md"
#define LAYOUTS "tests/layouts"
#define NAMES	"Attributes: "

#define LAYOUTS_MAX 32

static FILE *compatibility_open(void)
{
	FILE *page = page_open(PAGE);

	ck_assert_ptr_nonnull(page);
	return page;
}

/* --- "Attributes: `page_size` `persist`", on several lines */

static bool attribute_exists(const char *name)
{
	for (int id = 0; id < ATTR_COUNT; id++)
		if (strcmp(attributes[id].name, name) == 0)
			return true;
	return false;
}

/* Returns how many names the line has. */
static unsigned names_check(const char *line)
{
	char name[CELL_MAX];
	unsigned n = 0;

	while (*line == '`') {
		line = cut(line + 1, '`', name);
		line += strspn(line, " ");
		ck_assert_msg(attribute_exists(name), "%s invents %s", PAGE, name);
		n++;
	}
	return n;
}

START_TEST(attributes_agree)
{
	FILE *page = compatibility_open();
	char line[2048];
	unsigned n;

	while (fgets(line, sizeof(line), page) && strncmp(line, NAMES, strlen(NAMES)) != 0)
		;
	n = names_check(line + strlen(NAMES));
	while (fgets(line, sizeof(line), page) && *line == '`')
		n += names_check(line);
	fclose(page);
	ck_assert_uint_eq(n, ATTR_COUNT);
}
END_TEST

/* --- a row "| `journal` | 2 to 3 |" for each layout */

struct layout {
	char name[CELL_MAX];
	unsigned oldest, newest;
};

static struct layout layouts[LAYOUTS_MAX];
static unsigned n_layouts;

static struct layout *layout_find(const char *name)
{
	for (unsigned i = 0; i < n_layouts; i++)
		if (strcmp(layouts[i].name, name) == 0)
			return &layouts[i];
	return NULL;
}

static void layout_add(const char *name, unsigned version)
{
	struct layout *layout = layout_find(name);

	if (!layout) {
		ck_assert_uint_lt(n_layouts, LAYOUTS_MAX);
		layout = &layouts[n_layouts++];
		strcpy(layout->name, name);
		layout->oldest = layout->newest = version;
	}
	if (version < layout->oldest)
		layout->oldest = version;
	if (version > layout->newest)
		layout->newest = version;
}

/* The folder has a file NAME.VERSION for each version that this release reads. */
static void layouts_read(void)
{
	char pattern[PATH_MAX], name[CELL_MAX];
	glob_t found;
	unsigned version;

	page_path(LAYOUTS "/*.[0-9]*", pattern);
	ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		const char *file = strrchr(found.gl_pathv[i], '/') + 1;

		ck_assert_int_eq(sscanf(file, "%31[a-z_].%u", name, &version), 2);
		layout_add(name, version);
	}
	globfree(&found);
}

static void versions_compare(const char *name, const char *cell)
{
	const struct layout *layout = layout_find(name);
	char wanted[CELL_MAX];

	ck_assert_msg(layout, "%s names %s, which " LAYOUTS " lacks", PAGE, name);
	if (layout->oldest == layout->newest)
		snprintf(wanted, sizeof(wanted), "| %u |", layout->newest);
	else
		snprintf(wanted, sizeof(wanted), "| %u to %u |", layout->oldest, layout->newest);
	ck_assert_msg(strncmp(cell, wanted, strlen(wanted)) == 0, "%s: %s is not '%s'", PAGE, name,
		      wanted);
}

START_TEST(layouts_agree)
{
	FILE *page = compatibility_open();
	char line[2048], name[1][CELL_MAX];
	unsigned rows = 0;

	layouts_read();
	while (fgets(line, sizeof(line), page)) {
		if (!cells_read(line, name, 1))
			continue;
		versions_compare(name[0], strstr(line, "` ") + strlen("` "));
		rows++;
	}
	fclose(page);
	ck_assert_uint_eq(rows, n_layouts);
}
END_TEST

/* --- a message in quotation marks in each of these rows */

struct message {
	char text[CELL_MAX];
	bool found;
};

static struct message messages[LAYOUTS_MAX];
static unsigned n_messages;

static void messages_read(void)
{
	FILE *page = compatibility_open();
	char line[2048], name[1][CELL_MAX];

	while (fgets(line, sizeof(line), page)) {
		const char *quoted = strchr(line, '"');

		if (!cells_read(line, name, 1))
			continue;
		ck_assert_msg(quoted, "%s has no message for %s", PAGE, name[0]);
		ck_assert_uint_lt(n_messages, LAYOUTS_MAX);
		cut(quoted + 1, '"', messages[n_messages++].text);
	}
	fclose(page);
}

/* Joins literals, as the compiler does: "one " "two" becomes "one two". */
static void literals_join(char *text)
{
	char *to = text;

	while (*text) {
		size_t blanks = *text == '"' ? strspn(text + 1, " \t\n") : 0;

		if (blanks && text[1 + blanks] == '"')
			text += blanks + 2;
		else
			*to++ = *text++;
	}
	*to = '\0';
}

static void messages_find(const char *path, const char *file, void *context)
{
	static char text[1UL << 20];
	FILE *source = fopen(path, "re");

	(void)file, (void)context;
	ck_assert_ptr_nonnull(source);
	size_t length = fread(text, 1, sizeof(text) - 1, source);

	fclose(source);
	ck_assert_uint_lt(length, sizeof(text) - 1);
	text[length] = '\0';
	literals_join(text);
	for (unsigned i = 0; i < n_messages; i++)
		if (strstr(text, messages[i].text))
			messages[i].found = true;
}

START_TEST(messages_exist)
{
	messages_read();
	ck_assert_uint_gt(n_messages, 5);
	sources_each(messages_find, NULL);
	for (unsigned i = 0; i < n_messages; i++)
		ck_assert_msg(messages[i].found, "%s: no source has the message \"%s\"", PAGE,
			      messages[i].text);
}
END_TEST

int main(void)
{
	FILE *page = page_open(PAGE), *compare = page_open(LAYOUTS "/compare");
	TCase *tests;
	Suite *suite = unit_suite("docs_compatibility", &tests, 60);

	if (page)
		tcase_add_test(tests, attributes_agree);
	if (page && compare) {
		fclose(compare);
		tcase_add_test(tests, layouts_agree);
		tcase_add_test(tests, messages_exist);
	}
	int status = unit_main(suite);

	return page_closed(page, PAGE, status);
}
