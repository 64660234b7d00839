/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The spool as people see it: DIR/gpu0/path/file, hard links to the data under the files' names.
 * Nothing is read from it but names that are known in no other way, so what cannot be done here is
 * left undone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/defer.h"
#include "common/log.h"
#include "fs/spool_state.h"
#include "fs/uthash.h"

/* Of the tree: deeper, nobody looks at it with ls. */
#define DEPTH_MAX 256

struct spool_dir {
	uint64_t id, above; /* 0: the top */
	char *name;
	UT_hash_handle hh;
};

static struct spool_dir *dir_known(struct spool *spool, uint64_t id)
{
	struct spool_dir *dir;

	HASH_FIND(hh, spool->dirs, &id, sizeof(id), dir);
	return dir;
}

/* The directory of an id in the tree, made if need be: an fd, or -errno. */
static int dir_open(struct spool *spool, uint64_t id)
{
	const char *names[DEPTH_MAX];
	unsigned depth = 0;

	for (; id; depth++) {
		const struct spool_dir *dir = dir_known(spool, id);

		if (!dir || depth == DEPTH_MAX)
			return -ENOENT;
		names[depth] = dir->name;
		id = dir->above;
	}
	int fd = fcntl(spool->dir, F_DUPFD_CLOEXEC, 0);

	while (fd >= 0 && depth) {
		const char *name = names[--depth];
		int above = fd;

		mkdirat(above, name, 0700);
		fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(above);
	}
	return fd < 0 ? -errno : fd;
}

static void dir_forget(struct spool *spool, uint64_t id)
{
	struct spool_dir *dir = dir_known(spool, id);

	if (!dir)
		return;
	HASH_DEL(spool->dirs, dir);
	free(dir->name);
	free(dir);
}

static struct spool_dir *dir_remember(struct spool *spool, uint64_t id)
{
	struct spool_dir *dir = dir_known(spool, id);

	if (dir)
		return dir;
	dir = calloc(1, sizeof(*dir));
	if (!dir)
		return NULL;
	dir->id = id;
	HASH_ADD(hh, spool->dirs, id, sizeof(dir->id), dir);
	if (!dir->hh.tbl) { /* no memory for the table */
		free(dir);
		return NULL;
	}
	return dir;
}

static void put_dir(struct spool *spool, const struct spool_record *record)
{
	struct spool_dir *dir = dir_remember(spool, record->id);
	const struct spool_name *now = &record->names[0];

	if (!dir || (dir->name && dir->above == now->dir && strcmp(dir->name, now->name) == 0))
		return;
	char *name = strdup(now->name);

	if (!name)
		return;
	if (dir->name) {
		AUTO_CLOSE int from = dir_open(spool, dir->above);
		AUTO_CLOSE int to = dir_open(spool, now->dir);

		if (from >= 0 && to >= 0 && renameat(from, dir->name, to, name))
			log_debug("spool: %s: %s", name, strerror(errno));
	}
	free(dir->name);
	dir->name = name;
	dir->above = now->dir;
	int made = dir_open(spool, record->id);

	if (made >= 0)
		close(made);
}

static void remove_name(struct spool *spool, const struct spool_name *name)
{
	AUTO_CLOSE int dir = dir_open(spool, name->dir);

	if (dir >= 0)
		unlinkat(dir, name->name, 0);
}

/* The name leads to the data as it is now. */
static void put_file(struct spool *spool, const struct spool_record *record, int dir,
		     const char *name)
{
	char data[SPOOL_FILE_NAME];
	struct stat there, wanted;

	spool_file_name(data, record->id, 0);
	if (fstatat(spool->data, data, &wanted, AT_SYMLINK_NOFOLLOW))
		return;
	if (fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0) {
		if (there.st_ino == wanted.st_ino)
			return;
		unlinkat(dir, name, 0);
	}
	if (linkat(spool->data, data, dir, name, 0))
		log_debug("spool: %s: %s", name, strerror(errno));
}

static void put_link(const struct spool_record *record, int dir, const char *name)
{
	char target[1];
	ssize_t length = readlinkat(dir, name, target, sizeof(target));

	if (length < 0 && symlinkat(record->target, dir, name))
		log_debug("spool: %s: %s", name, strerror(errno));
}

static bool has_name(const struct spool_record *record, const struct spool_name *name)
{
	for (size_t i = 0; i < record->n_names; i++)
		if (record->names[i].dir == name->dir &&
		    strcmp(record->names[i].name, name->name) == 0)
			return true;
	return false;
}

void spool_mirror_put(struct spool *spool, const struct spool_record *record,
		      const struct spool_record *before)
{
	LOCKED(&spool->mirror);
	if (S_ISDIR(record->mode)) {
		put_dir(spool, record);
		return;
	}
	for (size_t i = 0; before && i < before->n_names; i++)
		if (!has_name(record, &before->names[i]))
			remove_name(spool, &before->names[i]);
	for (size_t i = 0; i < record->n_names; i++) {
		AUTO_CLOSE int dir = dir_open(spool, record->names[i].dir);

		if (dir >= 0 && S_ISREG(record->mode))
			put_file(spool, record, dir, record->names[i].name);
		else if (dir >= 0 && S_ISLNK(record->mode))
			put_link(record, dir, record->names[i].name);
	}
}

void spool_mirror_remove(struct spool *spool, const struct spool_record *record)
{
	LOCKED(&spool->mirror);
	for (size_t i = 0; i < record->n_names && !S_ISDIR(record->mode); i++)
		remove_name(spool, &record->names[i]);
	if (!S_ISDIR(record->mode) || !record->n_names)
		return;
	AUTO_CLOSE int dir = dir_open(spool, record->names[0].dir);

	if (dir >= 0)
		unlinkat(dir, record->names[0].name, AT_REMOVEDIR);
	dir_forget(spool, record->id);
}

void spool_mirror_free(struct spool *spool)
{
	while (spool->dirs)
		dir_forget(spool, spool->dirs->id);
}

/* --- names that are known in no other way */

static int add_path(struct spool_paths *paths, const struct stat *st, const char *path)
{
	if ((paths->count & (paths->count - 1)) == 0) {
		size_t room = paths->count ? paths->count * 2 : 1;
		struct spool_path *more = reallocarray(paths->at, room, sizeof(*paths->at));

		if (!more)
			return -ENOMEM;
		paths->at = more;
	}
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	paths->at[paths->count++] = (struct spool_path){st->st_dev, st->st_ino, copy};
	return 0;
}

static int walk(int above, const char *name, const char *path, unsigned depth,
		struct spool_paths *paths);

static int walk_entry(int dir, const char *path, const char *name, unsigned depth,
		      struct spool_paths *paths)
{
	AUTO_FREE char *below = NULL;
	struct stat st;

	if (name[0] == '.' && (!path[0] || !name[1] || (name[1] == '.' && !name[2])))
		return 0;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	if (asprintf(&below, "%s%s%s", path, path[0] ? "/" : "", name) < 0)
		return -ENOMEM;
	if (S_ISDIR(st.st_mode) && depth)
		return walk(dir, name, below, depth - 1, paths);
	return S_ISREG(st.st_mode) ? add_path(paths, &st, below) : 0;
}

static int walk(int above, const char *name, const char *path, unsigned depth,
		struct spool_paths *paths)
{
	int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while (rc == 0 && (entry = readdir(dir)))
		rc = walk_entry(fd, path, entry->d_name, depth, paths);
	closedir(dir);
	return rc;
}

int spool_mirror_paths(struct spool *spool, struct spool_paths *paths)
{
	return walk(spool->dir, ".", "", DEPTH_MAX, paths);
}

const char *spool_paths_find(const struct spool_paths *paths, struct spool *spool, uint64_t id)
{
	char name[SPOOL_FILE_NAME];
	struct stat st;

	spool_file_name(name, id, 0);
	if (fstatat(spool->data, name, &st, AT_SYMLINK_NOFOLLOW))
		return NULL;
	for (size_t i = 0; i < paths->count; i++)
		if (paths->at[i].inode == st.st_ino && paths->at[i].device == st.st_dev)
			return paths->at[i].path;
	return NULL;
}

void spool_paths_free(struct spool_paths *paths)
{
	for (size_t i = 0; i < paths->count; i++)
		free(paths->at[i].path);
	free(paths->at);
}
