/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The readable tree of the spool: DIR/gpu0/path/file, hard links to the data files under the names
 * of the files. The daemon reads the tree only to find names of files whose record is damaged, so
 * errors here are ignored. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/vector.h"
#include "fs/spool/internal.h"

/* Of the readable tree: deeper directories are left out. */
#define DEPTH_MAX 256

struct spool_dir {
	uint64_t id, parent; /* 0: the top */
	char *name;
	UT_hash_handle hh;
};

static struct spool_dir *link_dir_find(struct spool *spool, uint64_t id)
{
	struct spool_dir *dir;

	HASH_FIND(hh, spool->dirs, &id, sizeof(id), dir);
	return dir;
}

/* The directory of an id in the readable tree, created if missing: a descriptor, or -errno. */
static int link_dir_open(struct spool *spool, uint64_t id)
{
	const char *names[DEPTH_MAX];
	unsigned depth = 0;

	for (; id; depth++) {
		const struct spool_dir *dir = link_dir_find(spool, id);

		if (!dir || depth == DEPTH_MAX)
			return -ENOENT;
		names[depth] = dir->name;
		id = dir->parent;
	}
	int fd = fcntl(spool->dir, F_DUPFD_CLOEXEC, 0);

	while (fd >= 0 && depth) {
		const char *name = names[--depth];
		int parent_fd = fd;

		mkdirat(parent_fd, name, 0700);
		fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(parent_fd);
	}
	return fd < 0 ? -errno : fd;
}

static void link_dir_free(struct spool *spool, uint64_t id)
{
	struct spool_dir *dir = link_dir_find(spool, id);

	if (!dir)
		return;
	HASH_DEL(spool->dirs, dir);
	free(dir->name);
	free(dir);
}

static struct spool_dir *link_dir_add(struct spool *spool, uint64_t id)
{
	struct spool_dir *dir = link_dir_find(spool, id);

	if (dir)
		return dir;
	dir = calloc(1, sizeof(*dir));
	if (!dir)
		return NULL;
	dir->id = id;
	if (!HASH_ADD_NEW(hh, spool->dirs, id, sizeof(dir->id), dir)) {
		free(dir);
		return NULL;
	}
	return dir;
}

static struct spool_dir *link_dir_at(struct spool *spool, const struct spool_name *place)
{
	for (struct spool_dir *dir = spool->dirs; dir; dir = dir->hh.next)
		if (dir->name && dir->parent == place->dir && strcmp(dir->name, place->name) == 0)
			return dir;
	return NULL;
}

/* If another directory has the name already, the two swap places. The other directory moves on
 * when its own record is put. */
static void link_dir_move(struct spool *spool, struct spool_dir *dir,
			  const struct spool_name *place)
{
	struct spool_dir *occupant = link_dir_at(spool, place);
	AUTO_CLOSE int from = link_dir_open(spool, dir->parent);
	AUTO_CLOSE int to = link_dir_open(spool, place->dir);

	if (from < 0 || to < 0)
		return;
	if (renameat2(from, dir->name, to, place->name, occupant ? RENAME_EXCHANGE : 0)) {
		log_debug("spool: %s: %s", place->name, strerror(errno));
	} else if (occupant) {
		free(occupant->name);
		occupant->name = dir->name;
		occupant->parent = dir->parent;
		dir->name = NULL;
	}
}

static void link_dir_put(struct spool *spool, const struct spool_record *record)
{
	struct spool_dir *dir = link_dir_add(spool, record->id);
	const struct spool_name *now = &record->names[0];

	if (!dir || (dir->name && dir->parent == now->dir && strcmp(dir->name, now->name) == 0))
		return;
	char *name = strdup(now->name);

	if (!name)
		return;
	if (dir->name)
		link_dir_move(spool, dir, now);
	free(dir->name);
	dir->name = name;
	dir->parent = now->dir;
	int fd = link_dir_open(spool, record->id);

	if (fd >= 0)
		close(fd);
}

static bool leads_to_data(struct spool *spool, const struct spool_record *record, int dir,
			  const char *name)
{
	char data[SPOOL_FILE_NAME];
	struct stat link_stat, data_stat;

	spool_file_name(data, record->id, 0);
	return fstatat(spool->data, data, &data_stat, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(dir, name, &link_stat, AT_SYMLINK_NOFOLLOW) == 0 &&
	       link_stat.st_ino == data_stat.st_ino;
}

static bool leads_to_target(const struct spool_record *record, int dir, const char *name)
{
	char target[PATH_MAX];
	ssize_t length = readlinkat(dir, name, target, sizeof(target));

	return length >= 0 && (size_t)length == strlen(record->target) &&
	       memcmp(target, record->target, (size_t)length) == 0;
}

/* Whether the name in the readable tree leads to the record's data file, or is the record's
 * symbolic link. */
static bool name_is_of(struct spool *spool, const struct spool_record *record, int dir,
		       const char *name)
{
	return S_ISREG(record->mode)   ? leads_to_data(spool, record, dir, name)
	       : S_ISLNK(record->mode) ? leads_to_target(record, dir, name)
				       : false;
}

static void name_remove(struct spool *spool, const struct spool_record *record,
			const struct spool_name *name)
{
	AUTO_CLOSE int dir = link_dir_open(spool, name->dir);

	if (dir >= 0 && name_is_of(spool, record, dir, name->name))
		unlinkat(dir, name->name, 0);
}

static void name_put(struct spool *spool, const struct spool_record *record,
		     const struct spool_name *name)
{
	AUTO_CLOSE int dir = link_dir_open(spool, name->dir);
	char data[SPOOL_FILE_NAME];

	spool_file_name(data, record->id, 0);
	if (dir < 0 || name_is_of(spool, record, dir, name->name))
		return;
	/* Without a data file the name may be the last link to the bytes. */
	if (S_ISREG(record->mode) && faccessat(spool->data, data, F_OK, AT_SYMLINK_NOFOLLOW))
		return;
	unlinkat(dir, name->name, 0);
	if (S_ISREG(record->mode) ? linkat(spool->data, data, dir, name->name, 0)
				  : symlinkat(record->target, dir, name->name))
		log_debug("spool: %s: %s", name->name, strerror(errno));
}

static bool record_has_name(const struct spool_record *record, const struct spool_name *name)
{
	for (size_t i = 0; i < record->n_names; i++)
		if (record->names[i].dir == name->dir &&
		    strcmp(record->names[i].name, name->name) == 0)
			return true;
	return false;
}

void spool_links_leave(struct spool *spool, const struct spool_record *old_record,
		       const struct spool_record *record)
{
	scoped_lock(&spool->mirror);
	for (size_t i = 0; i < old_record->n_names && !S_ISDIR(old_record->mode); i++)
		if (!record_has_name(record, &old_record->names[i]))
			name_remove(spool, old_record, &old_record->names[i]);
}

void spool_links_put(struct spool *spool, const struct spool_record *record)
{
	scoped_lock(&spool->mirror);
	if (S_ISDIR(record->mode)) {
		link_dir_put(spool, record);
		return;
	}
	for (size_t i = 0; i < record->n_names; i++)
		if (S_ISREG(record->mode) || S_ISLNK(record->mode))
			name_put(spool, record, &record->names[i]);
}

void spool_links_remove(struct spool *spool, const struct spool_record *record)
{
	scoped_lock(&spool->mirror);
	for (size_t i = 0; i < record->n_names && !S_ISDIR(record->mode); i++)
		name_remove(spool, record, &record->names[i]);
	if (!S_ISDIR(record->mode) || !record->n_names)
		return;
	AUTO_CLOSE int dir = link_dir_open(spool, record->names[0].dir);

	if (dir >= 0)
		unlinkat(dir, record->names[0].name, AT_REMOVEDIR);
	link_dir_free(spool, record->id);
}

void spool_links_free(struct spool *spool)
{
	while (spool->dirs)
		link_dir_free(spool, spool->dirs->id);
}

/* --- names of files whose record is damaged */

static int path_add(struct spool_paths *paths, const struct stat *st, const char *path)
{
	struct spool_path *entries = vector_grow(paths->at, paths->count, sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	paths->at = entries;
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	paths->at[paths->count++] = (struct spool_path){st->st_dev, st->st_ino, copy};
	return 0;
}

static int paths_walk(int parent, const char *name, const char *path, unsigned depth,
		      struct spool_paths *paths);

static int paths_walk_entry(int dir, const char *path, const char *name, unsigned depth,
			    struct spool_paths *paths)
{
	AUTO_FREE char *entry_path = NULL;
	struct stat st;

	if (name[0] == '.' && (!path[0] || !name[1] || (name[1] == '.' && !name[2])))
		return 0;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	if (asprintf(&entry_path, "%s%s%s", path, path[0] ? "/" : "", name) < 0)
		return -ENOMEM;
	if (S_ISDIR(st.st_mode) && depth)
		return paths_walk(dir, name, entry_path, depth - 1, paths);
	return S_ISREG(st.st_mode) ? path_add(paths, &st, entry_path) : 0;
}

static int paths_walk(int parent, const char *name, const char *path, unsigned depth,
		      struct spool_paths *paths)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while (rc == 0 && (entry = readdir(dir)))
		rc = paths_walk_entry(fd, path, entry->d_name, depth, paths);
	closedir(dir);
	return rc;
}

int spool_links_paths(struct spool *spool, struct spool_paths *paths)
{
	return paths_walk(spool->dir, ".", "", DEPTH_MAX, paths);
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
