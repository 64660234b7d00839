/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A file that is written beside another and then takes its place, so that nobody sees half of it.
 */
#ifndef CLIENT_LIB_REPLACE_H
#define CLIENT_LIB_REPLACE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct client_replace {
	int fd;		 /* the new file, to read and write */
	int folder;	 /* O_PATH */
	char beside[40]; /* its name, as long as it has one that is not its own; or "" */
	char name[NAME_MAX + 1];
	bool exists; /* then it has mode */
	mode_t mode;
};

/* Begins to replace the file at path, or the one that a link there leads to; where there is none,
 * the new one gets mode, less the umask. 0, or -errno: -EISDIR, -EINVAL for what is no regular
 * file. */
int client_replace_begin(const char *path, mode_t mode, struct client_replace *replace);

/* Puts the new file into place; if that fails, -errno, and nothing has changed. The end of it. */
int client_replace_finish(const char *path, struct client_replace *replace);

/* The end of it without a trace. */
void client_replace_abandon(struct client_replace *replace);

#endif
