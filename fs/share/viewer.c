/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share/viewer.h"

#include "common/cleanup.h"
#include "fs/core/caller.h"
#include "fs/tree/inode.h"
#include "fs/tree/tree.h"

struct viewer viewer_of(uid_t uid)
{
	return (struct viewer){.uid = uid, .sees_all = user_is_privileged(uid)};
}

bool viewer_sees_file(const struct viewer *viewer, struct inode *inode)
{
	if (viewer->sees_all)
		return true;
	scoped_lock(&inode->lock);
	return inode->uid == viewer->uid;
}

bool viewer_sees_lease(const struct viewer *viewer, struct inode *inode, uid_t holder)
{
	return viewer->uid == holder || viewer_sees_file(viewer, inode);
}

void viewer_path(struct fs *fs, const struct viewer *viewer, struct inode *inode,
		 char path[PATH_MAX])
{
	if (viewer_sees_file(viewer, inode))
		tree_path_text(fs, inode, path, PATH_MAX);
	else
		tree_number_text(inode->ino, path, PATH_MAX);
}
