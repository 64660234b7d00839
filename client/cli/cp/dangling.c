/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: links that lead to a file in the source, and nowhere in the copy, because the file was
 * not copied. The files of a snapshot in a hub's cache are such links. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/cli/cp/walk.h"
#include "common/cleanup.h"

/* A copied link. */
struct cp_dangling {
	struct cp_target to;
	struct cp_dangling *next;
};

static bool leads_nowhere(int folder, const char *name)
{
	struct stat st;

	return fstatat(folder, name, &st, 0) < 0;
}

/* The file may be copied later: cp_dangling_report looks again. */
void cp_dangling_look(struct cp *cp, const struct cp_entry *entry)
{
	if (leads_nowhere(entry->in, entry->name) || !leads_nowhere(entry->out, entry->to.name))
		return;
	struct cp_dangling *link = calloc(1, sizeof(*link));

	if (link && cp_target_copy(&link->to, &entry->to)) {
		link->next = cp->dangling;
		cp->dangling = link;
	} else if (link) {
		cp_target_free(&link->to);
		free(link);
	}
}

static bool link_leads_nowhere(const struct cp_dangling *link)
{
	AUTO_CLOSE int folder = cp_dir_open(link->to.dir);

	return folder >= 0 && leads_nowhere(folder, link->to.name);
}

void cp_dangling_report(struct cp *cp)
{
	AUTO_FREE char *first = NULL;

	for (struct cp_dangling *link = cp->dangling, *next; link; link = next) {
		next = link->next;
		if (link_leads_nowhere(link)) {
			cp->n_dangling++;
			free(first);
			first = link->to.path;
			link->to.path = NULL;
		}
		cp_target_free(&link->to);
		free(link);
	}
	cp->dangling = NULL;
	if (first && cp->n_dangling == 1)
		cli_error("%s: this copied link leads nowhere, because its file was not copied: -L "
			  "copies files in place of links",
			  first);
	else if (first)
		cli_error("%s and %zu other copied links lead nowhere, because their files were "
			  "not copied: -L copies files in place of links",
			  first, cp->n_dangling - 1);
}
