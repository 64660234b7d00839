/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A scratch folder that simulates the root of a machine: a few files of /dev, /proc and /sys. */
#ifndef TESTS_UNIT_ROOT_FOLDER_H
#define TESTS_UNIT_ROOT_FOLDER_H

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit/unit.h"

static char root[] = "/tmp/gpumem-root.XXXXXX";

/* A fixture of the test case. */
static inline void root_make(void)
{
	strcpy(root + sizeof(root) - 7, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
}

static inline void root_remove(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}

/* The path below the root, whose folders exist now. Valid until the next call. */
static inline const char *root_path(const char *path)
{
	static char full[512];

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *at = strchr(full + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(full, 0755);
		*at = '/';
	}
	return full;
}

static inline void put(const char *path, const char *text)
{
	FILE *file = fopen(root_path(path), "w");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

#endif
