/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: a name that the walk of a source finds. */
#ifndef CLIENT_CLI_CP_WALK_H
#define CLIENT_CLI_CP_WALK_H

#include "client/cli/cp/cp.h"

struct cp_entry {
	const struct cp_entry *parent; /* the source's directory; NULL: named by the command line */
	int in;			       /* the source's directory, or AT_FDCWD */
	const char *name;	       /* in there */
	const char *from;	       /* for messages; NULL: standard input */
	int out;		       /* to.dir, open */
	struct cp_target to;	       /* to.name "": the directory itself */
	struct stat st;		       /* of the source */
};

/* special.c: copies a link, FIFO, socket or device node. */
void cp_special(struct cp *cp, const struct cp_entry *entry);

/* dangling.c. Notes a copied link that leads somewhere in the source, and nowhere in the copy yet.
 */
void cp_dangling_look(struct cp *cp, const struct cp_entry *entry);

#endif
