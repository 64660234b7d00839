/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: copies links, FIFOs, sockets and device nodes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "client/cli/cp/walk.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"

static int link_make(const struct cp_entry *entry)
{
	char target[PATH_MAX];
	ssize_t length = readlinkat(entry->in, entry->name, target, sizeof(target) - 1);

	if (length < 0)
		return errno;
	target[length] = '\0';
	return symlinkat(target, entry->out, entry->to.name) < 0 ? errno : 0;
}

static int special_make(const struct cp_entry *entry)
{
	const mode_t mode = (entry->st.st_mode & S_IFMT) | S_IRUSR | S_IWUSR;

	if (S_ISLNK(entry->st.st_mode))
		return link_make(entry);
	return mknodat(entry->out, entry->to.name, mode, entry->st.st_rdev) < 0 ? errno : 0;
}

/* The directory's owner may have put another file in the place of the node. */
static int special_set_attributes(const struct cp_entry *entry)
{
	AUTO_CLOSE int fd = beneath_open(entry->out, entry->to.name, O_PATH | O_NOFOLLOW, 0);
	const struct stat *st = &entry->st;
	struct stat new_st;

	if (fd < 0 || fstat(fd, &new_st) < 0)
		return fd < 0 ? -fd : errno;
	if ((new_st.st_mode & S_IFMT) != (st->st_mode & S_IFMT) || new_st.st_rdev != st->st_rdev ||
	    new_st.st_uid != geteuid() || new_st.st_nlink != 1)
		return CLI_REPLACED;
	return cp_attributes(-1, fd, st, NULL);
}

/* Replaces a file that exists, as cp(1) does. */
void cp_special(struct cp *cp, const struct cp_entry *entry)
{
	struct stat target_st;
	int error;

	if (cp->options.no_clobber &&
	    fstatat(entry->out, entry->to.name, &target_st, AT_SYMLINK_NOFOLLOW) == 0)
		return;
	error = special_make(entry);
	if (error == EEXIST)
		error = unlinkat(entry->out, entry->to.name, 0) < 0 ? errno : special_make(entry);
	if (!error)
		error = special_set_attributes(entry);
	if (error) {
		cp_failed(cp, cli_fail(entry->to.path, error));
		return;
	}
	cp_tell(cp, entry->from, entry->to.path);
	if (S_ISLNK(entry->st.st_mode))
		cp_dangling_look(cp, entry);
}
