/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Finds a page or another file of the checkout, for the tests that compare a page with the code. */
#ifndef TESTS_UNIT_PAGE_H
#define TESTS_UNIT_PAGE_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_FOLDER "tests/unit/"

/* Sets path to a file of the checkout: below GPUMEM_SRCDIR, or next to the source path of the
 * compilation. */
static inline void page_path(const char *name, char path[PATH_MAX])
{
	const char *root = getenv("GPUMEM_SRCDIR"), *here = strstr(__FILE__, UNIT_FOLDER);

	if (root)
		snprintf(path, PATH_MAX, "%s/%s", root, name);
	else
		snprintf(path, PATH_MAX, "%.*s%s", here ? (int)(here - __FILE__) : 0, __FILE__,
			 name);
}

/* Returns NULL if the file is missing, as on a machine with only the built tests. */
static inline FILE *page_open(const char *name)
{
	char path[PATH_MAX];

	page_path(name, path);
	return fopen(path, "re");
}

/* Returns status, or the exit status of a skipped test if the test passed without the page. */
static inline int page_closed(FILE *page, const char *name, int status)
{
	if (page)
		fclose(page);
	else if (status == 0)
		fprintf(stderr, "no %s here (GPUMEM_SRCDIR says where): not compared\n", name);
	return status == 0 && !page ? 77 : status;
}

#endif
