/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Finds the mount of gpumemfs whose root is at a path, without a request to its daemon, which may
 * have ended. */
#ifndef CLIENT_CLI_MOUNTPOINT_H
#define CLIENT_CLI_MOUNTPOINT_H

#include "client/cli/core/mounts.h"

/* The folder is held open, so that no other user can replace a directory above the mount by a link
 * between the check of the mount and its end. */
struct mountpoint {
	struct mounts mounts;
	const struct mount_at *mount; /* the topmost mount at the path */
	char *path;		      /* absolute, without symbolic links */
	const char *name;
	int folder; /* O_PATH: the directory that has the name */
};

/* 0, or the exit status after a message: there is no such path, or no root of a gpumemfs is there.
 */
int mountpoint_find(const char *word, struct mountpoint *point);
void mountpoint_free(struct mountpoint *point);
#define AUTO_MOUNTPOINT __attribute__((cleanup(mountpoint_free)))

#endif
