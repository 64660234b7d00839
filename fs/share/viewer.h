/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Who may see what of a file in the lists of .gpumem/. Root, the user who runs the daemon and the
 * file's owner see its path, and the processes that share it; others may know of the file by its
 * number alone. */
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
/* A lease is shown to who has it, too, though perhaps without the path. */
bool viewer_sees_lease(const struct viewer *viewer, struct inode *inode, uid_t holder);

/* The path of a file, if the viewer may see it, or else "inode N". */
void viewer_path(struct fs *fs, const struct viewer *viewer, struct inode *inode,
		 char path[PATH_MAX]);

#endif
