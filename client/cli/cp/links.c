/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp -a: keeps hard links between the copied files. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

#include "client/cli/cp/cp.h"
#include "common/cleanup.h"

/* A further name to make. */
struct cp_name {
	char *from;
	struct cp_target to;
	struct cp_name *next;
};

/* A file with several names, by its inode. The first name is copied as a file. */
struct cp_link {
	struct {
		dev_t device;
		ino_t inode;
	} key;
	struct cp_target first;
	struct cp_name *names;
	UT_hash_handle hh;
};

static void link_free(struct cp_link *link)
{
	cp_target_free(&link->first);
	free(link);
}

static struct cp_link *link_new(const struct stat *st, const struct cp_target *to)
{
	struct cp_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->key.device = st->st_dev;
	link->key.inode = st->st_ino;
	if (cp_target_copy(&link->first, to))
		return link;
	link_free(link);
	return NULL;
}

static void name_free(struct cp_name *name)
{
	cp_target_free(&name->to);
	free(name->from);
	free(name);
}

static struct cp_name *name_new(const char *from, const struct cp_target *to)
{
	struct cp_name *name = calloc(1, sizeof(*name));

	if (!name)
		return NULL;
	name->from = strdup(from);
	if (cp_target_copy(&name->to, to) && name->from)
		return name;
	name_free(name);
	return NULL;
}

/* Without memory for the entry, the name becomes a separate file. */
bool cp_link_later(struct cp *cp, const struct stat *st, const char *from,
		   const struct cp_target *to)
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
 * step. first and to are open directories. */
static int name_make_in(int first, const char *first_name, int to, const char *name)
{
	AUTO_FREE char *part = cp_partial_name(name);
	struct stat st;

	if (!part)
		return ENOMEM;
	unlinkat(to, part, 0);
	if (linkat(first, first_name, to, part, 0) < 0)
		return errno;
	int error = fstatat(to, part, &st, AT_SYMLINK_NOFOLLOW) < 0 ? errno
		    : !S_ISREG(st.st_mode)			    ? CLI_REPLACED
		    : renameat(to, part, to, name) < 0		    ? errno
								    : 0;

	/* If both names are links to one file, rename(2) has no effect. */
	unlinkat(to, part, 0);
	return error;
}

static int name_make(const struct cp_target *first, const struct cp_target *to)
{
	AUTO_CLOSE int first_folder = cp_dir_open(first->dir);
	AUTO_CLOSE int folder = cp_dir_open(to->dir);

	if (first_folder < 0 || folder < 0)
		return first_folder < 0 ? -first_folder : -folder;
	return name_make_in(first_folder, first->name, folder, to->name);
}

void cp_links_make(struct cp *cp)
{
	struct cp_link *link, *next_link;

	HASH_ITER (hh, cp->links, link, next_link) {
		for (struct cp_name *name = link->names, *next; name; name = next) {
			int error = cp_stopped(cp) ? 0 : name_make(&link->first, &name->to);

			if (error)
				cp_failed(cp, cli_fail(name->to.path, error));
			else if (!cp_stopped(cp))
				cp_tell(cp, name->from, name->to.path);
			next = name->next;
			name_free(name);
		}
		HASH_DEL(cp->links, link);
		link_free(link);
	}
}
