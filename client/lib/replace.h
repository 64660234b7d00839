/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Writes a file beside another and then renames the new file over the old one, so that no reader
 * sees half of the file. */
#ifndef CLIENT_LIB_REPLACE_H
#define CLIENT_LIB_REPLACE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct client_replace {
	int fd;		 /* of the new file, to read and write */
	int folder;	 /* O_PATH */
	char beside[40]; /* the temporary name of the new file, or "" */
	char name[NAME_MAX + 1];
	bool exists; /* an old file does, and has mode */
	mode_t mode;
};

/* Begins to replace the file at path, or the target of a link there. A file that does not exist yet
 * gets mode, less the umask. -EISDIR; -EINVAL: not a regular file; or another -errno. */
int client_replace_begin(const char *path, mode_t mode, struct client_replace *replace);

/* Renames the new file to its place and frees the struct. After an error nothing has changed. */
int client_replace_finish(const char *path, struct client_replace *replace);

/* Removes the new file and frees the struct. */
void client_replace_abandon(struct client_replace *replace);

#endif
