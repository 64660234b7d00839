/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* From an opened file to the daemon of its mount. */
#ifndef CLIENT_LIB_MOUNT_H
#define CLIENT_LIB_MOUNT_H

#include <stdbool.h>

#include "common/protocol.h"

/* A token for the file with the rights of flags (O_RDONLY, O_RDWR): those of the descriptor, or of
 * the file opened again. 0, or -ENOTSUP where it is not on gpumemfs, or another -errno. */
int client_mount_token(int fd, int flags, struct gpumem_token *token);

/* Has the file's lease sent over the connection that ask names, with the rights as above: 0, or
 * -errno without a text: -ESTALE as GPUMEM_IOC_LEASE says; after any other a token may do, or tells
 * why not. */
int client_mount_lease(int fd, int flags, struct gpumem_lease_ask *ask);

/* A new connection to the daemon of the mount that the file is on, which is looked for among all
 * mounts of its filesystem that this process sees: a bind mount of a folder has no socket. The fd,
 * or -ENOTCONN, -ENOTSUP. */
int client_mount_connect(int fd);

/* Calls each with the root (O_PATH, lent) of every mount of the file's filesystem that this process
 * sees, until it gives 0 or more, which is returned; else what it gave first, or -ENOENT. */
int client_mount_each(int fd, int (*each)(int root, void *argument), void *argument);

/* One line of /proc/self/mountinfo. */
struct client_mount_line {
	unsigned long id;
	unsigned major, minor;
	char *root, *where; /* point into the line, escapes resolved */
};
/* Takes the line apart; it is changed. */
bool client_mount_parse(char *line, struct client_mount_line *parsed);

#endif
