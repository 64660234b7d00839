/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A walk over all files below a path. */
#ifndef CLIENT_CLI_CORE_WALK_H
#define CLIENT_CLI_CORE_WALK_H

#include <stdbool.h>

#include "client/cli/core/mounts.h"

struct walk_entry {
	struct place place; /* its mount and path alone */
	bool is_directory;  /* else a regular file */
};

/* Gives an exit status. The walk goes on after a failure, as that of chmod -R does. */
typedef int walk_visit(const struct walk_entry *entry, void *context);

/* Visits the place and, if it is a directory, all regular files and directories below, each
 * directory before its entries; not the root of a mount, which has no attributes. Follows no link
 * and stays on the file system. Reports directories that cannot be read. The exit status of the
 * first failure, or CLI_OK. The next walk may begin when the walk has ended. */
int walk_tree(const struct place *place, walk_visit *visit, void *context);

#endif
