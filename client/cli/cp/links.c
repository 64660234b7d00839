/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp -a: keeps hard links between the copied files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

#include "client/cli/cp/cp.h"
#include "common/cleanup.h"

/* A further name to make. */
struct cp_name {
	char *from, *to;
	struct cp_name *next;
};

/* A file with several names, by its inode. The first name is copied as a file. */
struct cp_link {
	struct {
		dev_t device;
		ino_t inode;
	} key;
	char *first;
	struct cp_name *names;
	UT_hash_handle hh;
};

static struct cp_link *link_new(const struct stat *st, const char *to)
{
	struct cp_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->key.device = st->st_dev;
	link->key.inode = st->st_ino;
	link->first = strdup(to);
	if (link->first)
		return link;
	free(link);
	return NULL;
}

static struct cp_name *name_new(const char *from, const char *to)
{
	struct cp_name *name = calloc(1, sizeof(*name));

	if (!name)
		return NULL;
	name->from = strdup(from);
	name->to = strdup(to);
	if (name->from && name->to)
		return name;
	free(name->from);
	free(name->to);
	free(name);
	return NULL;
}

/* Without memory for the entry, the name becomes a separate file. */
bool cp_link_later(struct cp *cp, const struct stat *st, const char *from, const char *to)
{
	struct cp_link key = {.key = {0}}, *link;

	if (!cp->options.archive || !S_ISREG(st->st_mode) || st->st_nlink < 2)
		return false;
	key.key.device = st->st_dev;
	key.key.inode = st->st_ino;
	HASH_FIND(hh, cp->links, &key.key, sizeof(key.key), link);
	if (!link) {
		link = link_new(st, to);
		if (link)
			HASH_ADD(hh, cp->links, key, sizeof(link->key), link);
		return false;
	}
	struct cp_name *name = name_new(from, to);

	if (!name)
		return false;
	name->next = link->names;
	link->names = name;
	return true;
}

/* Links under a temporary name and then renames, so that an existing target is replaced in one
 * step. */
static int name_make(const char *first, const char *to)
{
	AUTO_FREE char *part = cp_partial_path(to);

	if (!part)
		return ENOMEM;
	unlink(part);
	if (link(first, part) < 0)
		return errno;
	int error = rename(part, to) < 0 ? errno : 0;

	/* If both names are links to one file, rename(2) has no effect. */
	unlink(part);
	return error;
}

void cp_links_make(struct cp *cp)
{
	struct cp_link *link, *next_link;

	HASH_ITER (hh, cp->links, link, next_link) {
		for (struct cp_name *name = link->names, *next; name; name = next) {
			int error = cp_stopped(cp) ? 0 : name_make(link->first, name->to);

			if (error)
				cp_failed(cp, cli_fail(name->to, error));
			else if (!cp_stopped(cp))
				cp_tell(cp, name->from, name->to);
			next = name->next;
			free(name->from);
			free(name->to);
			free(name);
		}
		HASH_DEL(cp->links, link);
		free(link->first);
		free(link);
	}
}
