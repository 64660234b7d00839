/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Writes a file beside another and then renames the new file over the old one, so that no reader
 * sees half of the file. */
#ifndef CLIENT_LIB_REPLACE_H
#define CLIENT_LIB_REPLACE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

/* Whether the new file may take the place of an old file. */
enum client_replace_kind { CLIENT_REPLACE_FILE, CLIENT_REPLACE_NOTHING };

struct client_replace {
	int fd;			 /* of the new file, to read and write */
	int folder;		 /* O_PATH */
	char temporary_name[40]; /* of the new file, or "" */
	char name[NAME_MAX + 1];
	bool exists;	 /* an old file does */
	bool keeps_mode; /* of the old file */
	bool keeps_owner;
	struct stat old;
	enum client_replace_kind kind;
	char *path; /* as the caller named the file, for errors */
};

/* Begins to replace the file at path, or the target of a link there. The new file keeps the old
 * file's mode, and its owner too if content, which may be NULL, is the old file. A file that does
 * not exist yet, or that another user has made where all users may make names, gets mode, less the
 * umask. -EISDIR; -EINVAL: not a regular file; -EEXIST: with CLIENT_REPLACE_NOTHING, the path
 * exists; -EACCES: a link of another user where all may make names; or another -errno. */
int client_replace_begin(const char *path, mode_t mode, enum client_replace_kind kind,
			 const struct stat *content, struct client_replace *replace);

/* Renames the new file to its place and frees the struct. After an error no file has changed.
 * -EEXIST: with CLIENT_REPLACE_NOTHING, the path exists by now. */
int client_replace_finish(struct client_replace *replace);

/* Removes the new file and frees the struct. */
void client_replace_abandon(struct client_replace *replace);

/* Frees the struct in the child of a fork: the parent names or removes the file. */
void client_replace_forget(struct client_replace *replace);

#endif
