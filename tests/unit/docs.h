/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Reads pages in Markdown, and lists the sources that the pages describe. */
#ifndef TESTS_UNIT_DOCS_H
#define TESTS_UNIT_DOCS_H

#include <glob.h>

#include "tests/unit/page.h"
#include "tests/unit/unit.h"

#define CELL_MAX 128

/* Copies the text up to the first end without a backslash before the end, and removes backslashes.
 * Returns the text after the end. */
static inline const char *cut(const char *text, char end, char cell[CELL_MAX])
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

/* Reads the texts in backquotes of a row's first cells. */
static inline unsigned cells_read(const char *line, char cells[][CELL_MAX], unsigned most)
{
	unsigned n = 0;

	while (n < most && strncmp(line, "| `", 3) == 0) {
		line = cut(line + 3, '`', cells[n++]);
		line += strspn(line, " ");
	}
	return n;
}

/* Calls each for every source of the daemon and the libraries, with the source's path and its name
 * in the checkout. */
static inline void sources_each(void (*each)(const char *path, const char *file, void *context),
				void *context)
{
	static const char *const sources[] = {
	    "fs/*/*.[ch]",	   "fs/*/*/*.[ch]",	    "backend/*.[ch]",
	    "backend/*/*.[ch]",	   "backend/*/*/*.[ch]",    "client/core/*.[ch]",
	    "client/gpu/*.[ch]",   "client/gpu/*/*.[ch]",   "client/lib/*.[ch]",
	    "client/lib/*/*.[ch]", "client/preload/*.[ch]", "client/preload/*/*.[ch]",
	    "common/*.[ch]",	   "common/*/*.[ch]"};
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

#endif
