/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: finds the files to copy. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cp/walk.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"

/* A walk of a tree, which must not enter its own target. */
struct walk {
	struct cp *cp;
	int base;	    /* the source's directory for the threads; AT_FDCWD: none yet */
	size_t prefix;	    /* of paths, up to what is below base */
	struct stat target; /* the first directory of the copy; st_ino 0: none yet */
};

char *cp_join(const char *dir, const char *name)
{
	size_t length = strlen(dir);
	char *path;

	while (length > 1 && dir[length - 1] == '/')
		length--;
	if (length == 1 && *dir == '/')
		length = 0;
	return asprintf(&path, "%.*s/%s", (int)length, dir, name) < 0 ? NULL : path;
}

static void path_fail(struct cp *cp, const char *path, int error)
{
	cp_failed(cp, cli_fail(path, error));
}

/* Whether the name at the place of the copy must stay. */
static bool target_refuse(struct cp *cp, const struct cp_entry *entry, const struct stat *target_st)
{
	const char *to = entry->to.path;

	if (entry->from && beneath_is_same(&entry->st, target_st))
		cli_error("%s and %s are the same file", entry->from, to);
	else if (S_ISDIR(target_st->st_mode))
		cli_error("%s is a directory", to);
	else if (!S_ISREG(target_st->st_mode) && !S_ISLNK(target_st->st_mode))
		cli_error("%s is no regular file", to);
	else
		return false;
	cp_failed(cp, CLI_FAILED);
	return true;
}

/* A link at the place of the copy is not followed but replaced. */
static void file_queue(const struct walk *walk, const struct cp_entry *entry)
{
	const struct cp_source from = {(char *)entry->from, walk->prefix, walk->base};
	const struct stat *st = &entry->st;
	struct cp *cp = walk->cp;
	struct stat target_st;
	bool exists = fstatat(entry->out, entry->to.name, &target_st, AT_SYMLINK_NOFOLLOW) == 0;

	if (exists && (cp->options.no_clobber || target_refuse(cp, entry, &target_st)))
		return;
	if (entry->from && cp_link_later(cp, st, entry->from, &entry->to))
		return;
	struct cp_file *file = cp_file_new(&from, &entry->to, st);

	if (!file) {
		path_fail(cp, entry->to.path, ENOMEM);
		return;
	}
	atomic_fetch_add(&cp->files_all, 1);
	if (S_ISREG(st->st_mode))
		atomic_fetch_add(&cp->bytes_all, (uint64_t)st->st_size);
	cp_queue(cp, file);
}

/* Whether the directory, open as fd, may get the files. A new directory must be the directory that
 * this process has made. An existing directory must not have been made ahead, where all users may
 * make names, by another user than the source's owner. */
static int directory_check(const struct cp_entry *entry, int fd, bool is_new)
{
	struct stat dir_st;

	if (fstat(fd, &dir_st) < 0)
		return errno;
	if (is_new)
		return dir_st.st_uid == geteuid() && !(dir_st.st_mode & (S_IRWXG | S_IRWXO))
			   ? 0
			   : CLI_REPLACED;
	return !*entry->to.name || dir_st.st_uid == entry->st.st_uid ||
		       beneath_owner_is_trusted(entry->out, &dir_st)
		   ? 0
		   : BENEATH_FOREIGN;
}

/* Makes a directory that is for this user alone until all of its files are copied. Gives the
 * descriptor, or -errno. */
static int directory_make(struct cp *cp, const struct cp_entry *entry)
{
	const char *name = entry->to.name;
	bool is_new = *name && mkdirat(entry->out, name, S_IRWXU) == 0;

	if (*name && !is_new && errno != EEXIST)
		return -errno;
	int fd = beneath_open(entry->out, name, O_PATH | O_DIRECTORY, 0);
	int error = fd < 0 ? -fd : directory_check(entry, fd, is_new);

	if (!error && is_new)
		cp_tell(cp, entry->from, entry->to.path);
	if (error && fd >= 0)
		close(fd);
	return error ? -error : fd;
}

static void directory_fail(struct cp *cp, const char *path, int error)
{
	if (error == ELOOP || error == ENOTDIR) {
		cli_error("%s is a link or file, and not replaced by a directory", path);
		cp_failed(cp, CLI_FAILED);
	} else if (error == BENEATH_FOREIGN) {
		cli_error("%s was created by another user in a directory where all users may "
			  "create names: to copy into it, name it as the target",
			  path);
		cp_failed(cp, CLI_DENIED);
	} else {
		path_fail(cp, path, error);
	}
}

static void directory_copy_xattrs(int from, int to)
{
	AUTO_CLOSE int out = openat(to, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	cp_xattrs(from, out, CP_XATTRS_OURS);
	cp_xattrs(from, out, CP_XATTRS_OTHERS);
}

/* Whether links are followed: those of the command line without -r, and all with -L. */
static bool entry_follows(const struct cp *cp, const struct cp_entry *entry)
{
	return cp->options.follow || (!entry->parent && !cp->options.recursive);
}

/* Opens the source's directory; the walk's first directory also for the threads. */
static DIR *directory_open(struct walk *walk, struct cp_entry *entry)
{
	int links = entry_follows(walk->cp, entry) ? 0 : O_NOFOLLOW;
	int fd = openat(entry->in, entry->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | links);

	if (fd < 0)
		return NULL;
	if (walk->base == AT_FDCWD) {
		int base = cp_base_keep(walk->cp, fcntl(fd, F_DUPFD_CLOEXEC, 0));

		walk->base = base >= 0 ? base : AT_FDCWD;
		errno = base < 0 ? -base : 0;
	}
	DIR *directory =
	    walk->base != AT_FDCWD && fstat(fd, &entry->st) == 0 ? fdopendir(fd) : NULL;

	if (!directory)
		close(fd);
	return directory;
}

/* Whether the source's directory is the first of the copy, or one of the directories above. */
static bool directory_is_endless(const struct walk *walk, const struct cp_entry *entry)
{
	if (walk->target.st_ino && beneath_is_same(&entry->st, &walk->target)) {
		cli_error("%s: a directory is not copied into itself", entry->from);
		return true;
	}
	for (const struct cp_entry *parent = entry->parent; parent; parent = parent->parent)
		if (beneath_is_same(&entry->st, &parent->st)) {
			cli_error("%s: a link leads to a directory above", entry->from);
			return true;
		}
	return false;
}

static void entry_walk(struct walk *walk, struct cp_entry *entry);

/* A name in the directory above, open as in; its copy gets into the directory dir, open as out. */
static void name_walk(struct walk *walk, const struct cp_entry *parent, int in, const char *name,
		      struct cp_dir *dir, int out)
{
	AUTO_FREE char *from = cp_join(parent->from, name), *to = cp_join(parent->to.path, name);

	if (!from || !to) {
		path_fail(walk->cp, parent->from, ENOMEM);
		return;
	}
	if (!walk->prefix)
		walk->prefix = strlen(from) - strlen(name);
	struct cp_entry entry = {.parent = parent,
				 .in = in,
				 .name = name,
				 .from = from,
				 .out = out,
				 .to = {dir, (char *)name, to}};

	entry_walk(walk, &entry);
}

static void names_walk(struct walk *walk, const struct cp_entry *entry, DIR *directory,
		       struct cp_dir *dir, int out)
{
	for (struct dirent *found; !cp_stopped(walk->cp) && (found = readdir(directory));)
		if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0)
			name_walk(walk, entry, dirfd(directory), found->d_name, dir, out);
}

/* The copy of the directory, open as *out; NULL: an error, which was reported. */
static struct cp_dir *directory_copy(struct walk *walk, const struct cp_entry *entry, int from,
				     int *out)
{
	struct cp *cp = walk->cp;

	*out = directory_make(cp, entry);
	struct cp_dir *dir = *out < 0 ? NULL : cp_dir_new(cp, entry->to.dir, &entry->to, *out);

	if (!dir) {
		directory_fail(cp, entry->to.path, *out < 0 ? -*out : ENOMEM);
		return NULL;
	}
	dir->is_copy = true;
	dir->st = entry->st;
	if (!walk->target.st_ino)
		walk->target = dir->identity;
	if (cp->options.archive)
		directory_copy_xattrs(from, *out);
	return dir;
}

static void directory_walk(struct walk *walk, struct cp_entry *entry)
{
	DIR *directory = directory_open(walk, entry);

	if (!directory) {
		path_fail(walk->cp, entry->from, errno);
		return;
	}
	if (directory_is_endless(walk, entry)) {
		cp_failed(walk->cp, CLI_FAILED);
	} else {
		AUTO_CLOSE int out = -1;
		struct cp_dir *dir = directory_copy(walk, entry, dirfd(directory), &out);

		if (dir)
			names_walk(walk, entry, directory, dir, out);
	}
	closedir(directory);
}

static void entry_walk(struct walk *walk, struct cp_entry *entry)
{
	struct cp *cp = walk->cp;
	int links = entry_follows(cp, entry) ? 0 : AT_SYMLINK_NOFOLLOW;

	if (fstatat(entry->in, entry->name, &entry->st, links) < 0) {
		path_fail(cp, entry->from, errno);
	} else if (S_ISDIR(entry->st.st_mode) && !cp->options.recursive) {
		cli_error("%s is a directory: -r copies it and all in it", entry->from);
		cp_failed(cp, CLI_USAGE);
	} else if (S_ISDIR(entry->st.st_mode)) {
		directory_walk(walk, entry);
	} else if (S_ISREG(entry->st.st_mode) || (!entry->parent && !S_ISLNK(entry->st.st_mode))) {
		file_queue(walk, entry);
	} else {
		cp_special(cp, entry);
	}
}

/* Standard input is read from its present position, also if it is a regular file. */
static void stdin_queue(const struct walk *walk, struct cp_entry *entry)
{
	entry->from = NULL;
	if (fstat(STDIN_FILENO, &entry->st) < 0) {
		path_fail(walk->cp, "standard input", errno);
		return;
	}
	entry->st.st_mode = S_IFIFO;
	file_queue(walk, entry);
}

void cp_walk(struct cp *cp, const char *from, const struct cp_target *to)
{
	struct walk walk = {.cp = cp, .base = AT_FDCWD};
	struct cp_entry entry = {
	    .in = AT_FDCWD, .name = from, .from = from, .out = to->dir->base, .to = *to};

	if (strcmp(from, "-") == 0)
		stdin_queue(&walk, &entry);
	else
		entry_walk(&walk, &entry);
}
