/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Finds a manual page of the checkout, for the tests that hold a table against it. */
#ifndef TESTS_UNIT_PAGE_H
#define TESTS_UNIT_PAGE_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_FOLDER "tests/unit/"

/* Where the checkout is: GPUMEM_SRCDIR, or from the path that the test was compiled by. NULL where
 * there is none, as on a machine that has the built tests alone. */
static inline FILE *page_open(const char *name)
{
	const char *root = getenv("GPUMEM_SRCDIR"), *here = strstr(__FILE__, UNIT_FOLDER);
	char path[PATH_MAX];

	if (root)
		snprintf(path, sizeof(path), "%s/%s", root, name);
	else
		snprintf(path, sizeof(path), "%.*s%s", here ? (int)(here - __FILE__) : 0, __FILE__,
			 name);
	return fopen(path, "re");
}

/* The exit status of a test that is good in all but what it could not compare. */
static inline int page_closed(FILE *page, const char *name, int status)
{
	if (page)
		fclose(page);
	else if (status == 0)
		fprintf(stderr, "no %s here (GPUMEM_SRCDIR says where): not compared\n", name);
	return status == 0 && !page ? 77 : status;
}

#endif
