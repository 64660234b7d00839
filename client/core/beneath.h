/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Opens files in trees that other users may change at any moment: a directory can become a link
 * between two calls, so that a path leads elsewhere. Below an open directory no link is followed,
 * and owner, mode and times are set by descriptor. The functions give 0 or more, or -errno. */
#ifndef CLIENT_CORE_BENEATH_H
#define CLIENT_CORE_BENEATH_H

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>

/* Opens the path, which is relative to the directory base; "" is the directory itself. A link in
 * the path is -ELOOP or -ENOTDIR, and a path that leaves the directory is -EXDEV. With O_PATH and
 * O_NOFOLLOW a link at the end is opened itself. The call never waits for the other end of a FIFO.
 */
int beneath_open(int base, const char *path, int flags, mode_t mode);

/* Opens an absolute path that had no links (realpath(3)), if there are still none. */
int beneath_open_real(const char *path, int flags);

/* The path by which calls without a descriptor reach an open file, also if it is O_PATH. */
#define BENEATH_THROUGH_MAX 32
const char *beneath_through(int fd, char path[BENEATH_THROUGH_MAX]);

/* Whether both are the same file. */
bool beneath_is_same(const struct stat *first, const struct stat *second);

/* Sets owner and group, mode, or times (access, modification) by a descriptor, which may be O_PATH.
 * A link has no mode of its own. */
int beneath_chown(int fd, uid_t uid, gid_t gid);
int beneath_chmod(int fd, mode_t mode);
int beneath_set_times(int fd, const struct timespec times[2]);

/* Whether this process may go where a name leads that the owner of st has made in the directory.
 * Where all users may make names, as in /tmp, links of this process's user and of the directory's
 * owner alone are followed: the rule of fs.protected_symlinks, which may be off. */
bool beneath_owner_is_trusted(int directory, const struct stat *st);

/* Errors of beneath_find: a link that beneath_owner_is_trusted does not allow, and a link that
 * leads nowhere. */
#define BENEATH_FOREIGN	 EKEYREJECTED
#define BENEATH_DANGLING ENOLINK

enum beneath_kind { BENEATH_DIRECTORY, BENEATH_FILE, BENEATH_NEW };

/* A path that a user has named, with its links followed. */
struct beneath_place {
	int folder;	/* O_PATH; of BENEATH_DIRECTORY the directory itself */
	char *name;	/* in there */
	struct stat st; /* not of BENEATH_NEW */
};

/* Finds a file or directory, or the place of a new file, once and for all: the kind, or -errno. */
int beneath_find(const char *path, struct beneath_place *place);
void beneath_place_free(struct beneath_place *place);

#endif
