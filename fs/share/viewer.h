/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A viewer is a user that reads a list of .gpumem/. Root, the daemon's user and the file's owner
 * see the path of a file and the processes that share the file; other users see only the inode
 * number. */
#ifndef FS_SHARE_VIEWER_H
#define FS_SHARE_VIEWER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct fs;
struct inode;

struct viewer {
	uid_t uid;
	bool sees_all;
};

struct viewer viewer_of(uid_t uid);
bool viewer_sees_file(const struct viewer *viewer, struct inode *inode);
/* The holder of a lease sees the lease, too, but perhaps no path. */
bool viewer_sees_lease(const struct viewer *viewer, struct inode *inode, uid_t holder);

/* The path of a file if the viewer may see the path, else "inode N". */
void viewer_path(struct fs *fs, const struct viewer *viewer, struct inode *inode,
		 char path[PATH_MAX]);

#endif
