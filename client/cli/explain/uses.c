/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/explain/uses.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/core/facts.h"
#include "common/cleanup.h"
#include "common/number.h"
#include "common/system/mounts.h"
#include "common/vector.h"

struct search {
	const struct mounts *mounts;
	const struct use_filter *filter;
	struct uses *uses;
	const struct mount_at *mount; /* its leases are read */
	int error;
};

/* A file of a lease, a mapping or a descriptor. */
struct found {
	pid_t pid;
	uid_t uid;
	dev_t device;
	uint64_t inode;
	const char *path, *inside; /* inside: within the file system; NULL: unknown */
};

static bool is_wanted(const struct search *search, const struct found *found)
{
	const struct use_filter *filter = search->filter;

	return (!filter->pid || filter->pid == found->pid) &&
	       (!filter->device ||
		(filter->device == found->device && filter->inode == found->inode)) &&
	       mounts_have(search->mounts, found->device);
}

static struct use *use_add(struct search *search, const struct found *found)
{
	struct uses *uses = search->uses;
	struct use *new_array = vector_grow(uses->at, uses->count, sizeof(*new_array));
	char *path = strdup(found->path);

	if (new_array)
		uses->at = new_array;
	if (!new_array || !path) {
		free(path);
		search->error = -ENOMEM;
		return NULL;
	}
	new_array[uses->count] = (struct use){
	    .pid = found->pid,
	    .uid = found->uid,
	    .device = found->device,
	    .inode = found->inode,
	    .path = path,
	    .in_host = found->inside && facts_is_below(found->inside, "/host"),
	};
	return &new_array[uses->count++];
}

/* The use of the file by the process; NULL: the filter leaves the use out, or no memory. */
static struct use *use_of(struct search *search, const struct found *found)
{
	if (!is_wanted(search, found))
		return NULL;
	for (size_t i = 0; i < search->uses->count; i++) {
		struct use *use = &search->uses->at[i];

		if (use->pid == found->pid && use->device == found->device &&
		    use->inode == found->inode)
			return use;
	}
	return use_add(search, found);
}

static void lease_add(void *context, const struct sharer *sharer)
{
	struct search *search = context;
	AUTO_FREE char *path = NULL;

	if (asprintf(&path, "%s%s%s", search->mount->mountpoint, *sharer->path == '/' ? "" : ": ",
		     sharer->path) < 0)
		return;
	struct use *use = use_of(search, &(struct found){.pid = sharer->pid,
							 .uid = sharer->uid,
							 .device = search->mount->device,
							 .inode = sharer->inode,
							 .path = path,
							 .inside = sharer->path});

	/* A file that was made without a name has none in /proc ever. */
	if (use && *sharer->path == '/' && strcmp(use->path, path) != 0) {
		free(use->path);
		use->path = path;
		path = NULL;
	}
	/* Of several leases of a process the one with the memory itself counts. */
	if (use && (!use->lease || strcmp(use->lease, "copy") == 0))
		use->lease = sharer->access;
}

static void mapping_add(struct search *search, pid_t pid, uid_t uid, char *line)
{
	AUTO_FREE char *inside = NULL;

	line[strcspn(line, "\n")] = '\0';
	struct maps_line mapping = maps_line_parse(line);

	if (!mapping.inode || *mapping.path != '/')
		return;
	(void)mounts_of(search->mounts, mapping.path, &inside);
	struct use *use = use_of(search, &(struct found){.pid = pid,
							 .uid = uid,
							 .device = mapping.device,
							 .inode = mapping.inode,
							 .path = mapping.path,
							 .inside = inside});

	if (use)
		use->mapped += mapping.end - mapping.start;
}

/* 0 or -errno. */
static int mappings_read(struct search *search, int process, pid_t pid, uid_t uid)
{
	int fd = openat(process, "maps", O_RDONLY | O_CLOEXEC);
	AUTO_FCLOSE FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
	AUTO_FREE char *line = NULL;
	size_t room = 0;

	if (!maps)
		return -errno;
	while (getline(&line, &room, maps) >= 0)
		mapping_add(search, pid, uid, line);
	return ferror(maps) ? -errno : 0;
}

/* stat(2) only for descriptors with a path on a mount: other file systems may hang. */
static void descriptor_add(struct search *search, int descriptors, const char *name, pid_t pid,
			   uid_t uid)
{
	char path[PATH_MAX];
	ssize_t length = readlinkat(descriptors, name, path, sizeof(path) - 1);
	AUTO_FREE char *inside = NULL;
	struct stat st;

	if (length <= 0)
		return;
	path[length] = '\0';
	if (!mounts_of(search->mounts, path, &inside) || fstatat(descriptors, name, &st, 0) < 0 ||
	    !S_ISREG(st.st_mode))
		return;
	struct use *use = use_of(search, &(struct found){.pid = pid,
							 .uid = uid,
							 .device = st.st_dev,
							 .inode = st.st_ino,
							 .path = path,
							 .inside = inside});

	if (use)
		use->open = true;
}

static int descriptors_read(struct search *search, int process, pid_t pid, uid_t uid)
{
	int fd = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!directory)
		return -errno;
	while ((entry = readdir(directory)))
		if (*entry->d_name != '.')
			descriptor_add(search, dirfd(directory), entry->d_name, pid, uid);
	closedir(directory);
	return 0;
}

/* 0 or -errno: -ESRCH if the process has ended. */
static int process_read(struct search *search, int proc, const char *name, pid_t pid)
{
	AUTO_CLOSE int process = openat(proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (process < 0 || fstat(process, &st) < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	int mapped = mappings_read(search, process, pid, st.st_uid);
	int opened = descriptors_read(search, process, pid, st.st_uid);

	if (mapped == -EACCES || opened == -EACCES)
		search->uses->hidden++;
	return 0;
}

static int processes_read(struct search *search)
{
	DIR *proc = opendir("/proc");
	const struct dirent *entry;
	uint64_t pid;

	if (!proc)
		return -errno;
	while ((entry = readdir(proc)) && !search->error)
		if (parse_u64(entry->d_name, 1, INT_MAX, &pid) == 0)
			process_read(search, dirfd(proc), entry->d_name, (pid_t)pid);
	closedir(proc);
	return search->error;
}

static int leases_read(struct search *search)
{
	for (size_t i = 0; i < search->mounts->count && !search->error; i++) {
		search->mount = &search->mounts->at[i];
		if (strcmp(search->mount->root, "/") != 0 ||
		    (search->filter->device && search->filter->device != search->mount->device))
			continue;
		search->error = facts_sharers(search->mount->mountpoint, lease_add, search);
	}
	return search->error;
}

static int by_process(const void *first, const void *second)
{
	const struct use *a = first, *b = second;

	return a->pid != b->pid ? (a->pid > b->pid) - (a->pid < b->pid) : strcmp(a->path, b->path);
}

int uses_find(const struct mounts *mounts, const struct use_filter *filter, struct uses *uses)
{
	struct search search = {.mounts = mounts, .filter = filter, .uses = uses};
	AUTO_CLOSE int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[16];

	*uses = (struct uses){0};
	snprintf(name, sizeof(name), "%d", (int)filter->pid);
	int error =
	    filter->pid ? process_read(&search, proc, name, filter->pid) : processes_read(&search);

	if (!error)
		error = leases_read(&search);
	if (!error)
		error = search.error;
	if (error)
		uses_free(uses);
	else if (uses->count)
		qsort(uses->at, uses->count, sizeof(*uses->at), by_process);
	return error;
}

void uses_free(struct uses *uses)
{
	for (size_t i = 0; i < uses->count; i++)
		free(uses->at[i].path);
	free(uses->at);
	*uses = (struct uses){0};
}

static bool has_memory(const struct use *use)
{
	return (use->lease && strcmp(use->lease, "copy") != 0) || (use->in_host && use->mapped);
}

const char *use_manner(const struct use *use)
{
	if (use->lease && strcmp(use->lease, "own") == 0)
		return "its own memory: the file ends with the process";
	if (has_memory(use))
		return "in place";
	if (use->lease)
		return "private copy";
	return use->mapped ? "page cache" : "reads and writes";
}

const char *use_advice(const struct use *use)
{
	if (has_memory(use))
		return NULL;
	if (use->lease)
		return "gpumem set FILE share=trusted: readers get the file's own memory";
	if (use->in_host)
		return "mmap(2) maps the memory itself";
	return use->mapped ? "gpumem run -- COMMAND: copies to a GPU come from the memory itself"
			   : "gpumem_open(3), gpumem in Python, or gpumem run -- COMMAND";
}
