/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: finds the files to copy. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/core/output.h"
#include "client/cli/cp/cp.h"
#include "common/cleanup.h"

/* A walk of a tree, which must not enter its own target. */
struct walk {
	struct cp *cp;
	dev_t device;
	ino_t target;
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

void cp_tell(const struct cp *cp, const char *from, const char *to)
{
	AUTO_FREE char *shown_from = NULL, *shown_to = NULL;

	if (!cp->options.verbose)
		return;
	shown_from = output_escape(from);
	shown_to = output_escape(to);
	if (!shown_from || !shown_to)
		return;
	if (atomic_exchange(&cli_line_open, false))
		fputs("\r\033[K", stderr);
	/* With --json, standard output has JSON only. */
	fprintf(cp->options.json ? stderr : stdout, "'%s' -> '%s'\n", shown_from, shown_to);
}

static void path_fail(struct cp *cp, const char *path, int error)
{
	cp_failed(cp, cli_fail(path, error));
}

static bool stat_same_file(const struct stat *one, const struct stat *other)
{
	return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* An existing link at the target is followed, as by cp(1). */
static void file_queue(struct cp *cp, const char *from, const char *to, const struct stat *st)
{
	AUTO_FREE char *real = NULL;
	struct stat there;
	bool exists = lstat(to, &there) == 0;

	if (exists && S_ISLNK(there.st_mode)) {
		real = realpath(to, NULL);
		if (!real) {
			cli_error("%s is a link that leads nowhere", to);
			cp_failed(cp, CLI_FAILED);
			return;
		}
		to = real;
		exists = stat(to, &there) == 0;
	}
	if (exists && cp->options.no_clobber)
		return;
	if (exists && from && stat_same_file(st, &there)) {
		cli_error("%s and %s are the same file", from, to);
		cp_failed(cp, CLI_FAILED);
		return;
	}
	if (exists && !S_ISREG(there.st_mode)) {
		cli_error("%s is %s", to,
			  S_ISDIR(there.st_mode) ? "a directory" : "no regular file");
		cp_failed(cp, CLI_FAILED);
		return;
	}
	if (from && cp_link_later(cp, st, from, to))
		return;
	struct cp_file *file = cp_file_new(from, to, st);

	if (!file) {
		path_fail(cp, to, ENOMEM);
		return;
	}
	atomic_fetch_add(&cp->files_all, 1);
	if (S_ISREG(st->st_mode))
		atomic_fetch_add(&cp->bytes_all, (uint64_t)st->st_size);
	cp_queue(cp, file);
}

static int link_copy(const char *from, const char *to)
{
	char target[PATH_MAX];
	ssize_t length = readlink(from, target, sizeof(target) - 1);

	if (length < 0)
		return errno;
	target[length] = '\0';
	if (symlink(target, to) == 0)
		return 0;
	if (errno != EEXIST || unlink(to) < 0)
		return errno;
	return symlink(target, to) < 0 ? errno : 0;
}

/* Copies links, FIFOs and device nodes. */
static void special_copy(struct cp *cp, const char *from, const char *to, const struct stat *st)
{
	struct stat there;
	int error;

	if (cp->options.no_clobber && lstat(to, &there) == 0)
		return;
	if (S_ISLNK(st->st_mode)) {
		error = link_copy(from, to);
	} else if (S_ISFIFO(st->st_mode)) {
		error = mkfifo(to, 0600) < 0 && errno != EEXIST ? errno : 0;
	} else {
		error =
		    mknod(to, st->st_mode & S_IFMT, st->st_rdev) < 0 && errno != EEXIST ? errno : 0;
	}
	if (!error)
		error = cp_attributes(-1, to, st, NULL);
	if (error)
		path_fail(cp, to, error);
	else
		cp_tell(cp, from, to);
}

static void directory_copy_xattrs(const char *from, const char *to)
{
	AUTO_CLOSE int in = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int out = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	cp_xattrs(in, out, CP_XATTRS_OURS);
	cp_xattrs(in, out, CP_XATTRS_OTHERS);
}

/* Makes a directory that is writable for this user until all of its files are copied. */
static int directory_make(struct cp *cp, const char *from, const char *to, const struct stat *st)
{
	struct stat there;

	if (mkdir(to, 0700) == 0)
		cp_tell(cp, from, to);
	else if (errno != EEXIST)
		return errno;
	if (stat(to, &there) < 0)
		return errno;
	if (!S_ISDIR(there.st_mode))
		return ENOTDIR;
	if (cp->options.archive)
		directory_copy_xattrs(from, to);
	struct cp_dir *more = reallocarray(cp->dirs, cp->n_dirs + 1, sizeof(*more));

	if (!more)
		return ENOMEM;
	cp->dirs = more;
	more[cp->n_dirs] = (struct cp_dir){strdup(to), *st};
	return more[cp->n_dirs].path ? (int)(cp->n_dirs++, 0) : ENOMEM;
}

static void directory_walk(struct walk *walk, const char *from, const char *to,
			   const struct stat *st);

static void entry_walk(struct walk *walk, const char *from, const char *to)
{
	struct stat st;

	if (lstat(from, &st) < 0)
		path_fail(walk->cp, from, errno);
	else if (S_ISDIR(st.st_mode))
		directory_walk(walk, from, to, &st);
	else if (S_ISREG(st.st_mode))
		file_queue(walk->cp, from, to, &st);
	else
		special_copy(walk->cp, from, to, &st);
}

static void directory_walk(struct walk *walk, const char *from, const char *to,
			   const struct stat *st)
{
	if (walk->target && st->st_dev == walk->device && st->st_ino == walk->target) {
		cli_error("%s: a directory is not copied into itself", from);
		cp_failed(walk->cp, CLI_FAILED);
		return;
	}
	int error = directory_make(walk->cp, from, to, st);
	DIR *dir = error ? NULL : opendir(from);
	struct stat there;

	if (!dir) {
		path_fail(walk->cp, error ? to : from, error ? error : errno);
		return;
	}
	if (!walk->target && stat(to, &there) == 0) {
		walk->device = there.st_dev;
		walk->target = there.st_ino;
	}
	for (struct dirent *entry; !cp_stopped(walk->cp) && (entry = readdir(dir));) {
		AUTO_FREE char *inner = NULL, *target = NULL;

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		inner = cp_join(from, entry->d_name);
		target = cp_join(to, entry->d_name);
		if (!inner || !target)
			path_fail(walk->cp, from, ENOMEM);
		else
			entry_walk(walk, inner, target);
	}
	closedir(dir);
}

void cp_walk(struct cp *cp, const char *from, const char *to)
{
	struct walk walk = {.cp = cp};
	struct stat st;

	if (strcmp(from, "-") == 0) {
		if (fstat(STDIN_FILENO, &st) < 0) {
			path_fail(cp, "standard input", errno);
			return;
		}
		/* Standard input is read from its present position, also if it is a regular file.
		 */
		st.st_mode = S_IFIFO;
		file_queue(cp, NULL, to, &st);
	} else if ((cp->options.recursive ? lstat(from, &st) : stat(from, &st)) < 0) {
		path_fail(cp, from, errno);
	} else if (S_ISDIR(st.st_mode) && !cp->options.recursive) {
		cli_error("%s is a directory: -r copies it and all in it", from);
		cp_failed(cp, CLI_USAGE);
	} else if (S_ISDIR(st.st_mode)) {
		directory_walk(&walk, from, to, &st);
	} else if (S_ISLNK(st.st_mode)) {
		special_copy(cp, from, to, &st);
	} else {
		file_queue(cp, from, to, &st);
	}
}

void cp_walk_end(struct cp *cp)
{
	while (cp->n_dirs) {
		struct cp_dir *dir = &cp->dirs[--cp->n_dirs];
		int error = cp_attributes(-1, dir->path, &dir->st, NULL);

		if (error)
			path_fail(cp, dir->path, error);
		free(dir->path);
	}
	free(cp->dirs);
	cp->dirs = NULL;
}
