/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "common/cleanup.h"

#define LINKS_MAX 40 /* as the kernel follows */
#define IS_LINK	  BENEATH_NEW + 1

/* Opens the directory of the path, relative to the directory at, and allocates the last name: "" if
 * the path has none. */
static int path_split(int at, const char *path, char **name)
{
	AUTO_FREE char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	for (size_t length = strlen(copy); length > 1 && copy[length - 1] == '/'; length--)
		copy[length - 1] = '\0';
	char *slash = strrchr(copy, '/'), *last = slash ? slash + 1 : copy;
	bool is_name = *last && strcmp(last, ".") != 0 && strcmp(last, "..") != 0;

	if (strlen(last) > NAME_MAX)
		return -ENAMETOOLONG;
	*name = strdup(is_name ? last : "");
	if (!*name)
		return -ENOMEM;
	if (is_name)
		*last = '\0';
	int fd = openat(at, *copy ? copy : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Looks at the name in the folder: a kind, IS_LINK with the link's text, or -errno. A directory
 * takes the folder's place. */
static int name_look(struct beneath_place *place, char text[PATH_MAX])
{
	AUTO_CLOSE int fd = openat(place->folder, *place->name ? place->name : ".",
				   O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? BENEATH_NEW : -errno;
	if (fstat(fd, &place->st) < 0)
		return -errno;
	if (S_ISDIR(place->st.st_mode)) {
		int directory = fcntl(fd, F_DUPFD_CLOEXEC, 0);

		if (directory < 0)
			return -errno;
		close(place->folder);
		place->folder = directory;
		return BENEATH_DIRECTORY;
	}
	if (!S_ISLNK(place->st.st_mode))
		return BENEATH_FILE;
	if (!beneath_owner_is_trusted(place->folder, &place->st))
		return -BENEATH_FOREIGN;
	ssize_t length = readlinkat(fd, "", text, PATH_MAX - 1);

	text[length > 0 ? length : 0] = '\0';
	return length > 0 ? IS_LINK : -ENOENT;
}

/* The kernel follows links before the last name. The last name is opened step by step, so that the
 * link that is followed has the owner that was checked. */
static int path_follow(const char *path, struct beneath_place *place)
{
	char text[PATH_MAX];
	int kind = IS_LINK;

	for (int links = 0; kind == IS_LINK && links <= LINKS_MAX; links++) {
		int parent = place->folder;

		free(place->name);
		place->name = NULL;
		place->folder = path_split(links ? parent : AT_FDCWD, path, &place->name);
		if (parent >= 0)
			close(parent);
		if (place->folder < 0)
			return place->folder;
		kind = name_look(place, text);
		if (kind == BENEATH_NEW && links)
			return -BENEATH_DANGLING;
		path = text;
	}
	return kind == IS_LINK ? -ELOOP : kind;
}

int beneath_find(const char *path, struct beneath_place *place)
{
	*place = (struct beneath_place){.folder = -1};
	int kind = path_follow(path, place);

	if (kind < 0)
		beneath_place_free(place);
	return kind;
}

void beneath_place_free(struct beneath_place *place)
{
	if (place->folder >= 0)
		close(place->folder);
	free(place->name);
	*place = (struct beneath_place){.folder = -1};
}
