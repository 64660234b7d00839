/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A walk over all files below a path. */
#ifndef CLIENT_CLI_WALK_H
#define CLIENT_CLI_WALK_H

#include <stdbool.h>

struct walk_entry {
	const char *path;
	bool is_directory; /* else a regular file */
	bool is_top;	   /* the path that the walk began with */
};

/* Gives an exit status. The walk goes on after a failure, as that of chmod -R does. */
typedef int walk_visit(const struct walk_entry *entry, void *context);

/* Visits the path and, if it is a directory, all regular files and directories below, each
 * directory before its entries. Follows no link and stays on the file system. Reports directories
 * that cannot be read. The exit status of the first failure, or CLI_OK. The next walk may begin
 * when the walk has ended. */
int walk_tree(const char *path, walk_visit *visit, void *context);

#endif
