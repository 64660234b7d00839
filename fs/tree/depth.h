/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The limit of nested directories. Every charge, quota check and rename walks through all
 * directories above a file, and users choose how many directories there are. */
#ifndef FS_TREE_DEPTH_H
#define FS_TREE_DEPTH_H

#include <stdint.h>

struct inode;

/* Levels below the root of the mount: as many as a path of PATH_MAX bytes can name. */
#define DEPTH_MAX 2000

/* Checks a directory in parent that has height levels of directories below: 0, or -ENAMETOOLONG if
 * the lowest level would be too deep. Topology is held. */
int depth_check(const struct inode *parent, uint32_t height);
/* Call after a directory was given its parent: raises dir->height of all directories above.
 * Topology is held. */
void depth_added(const struct inode *dir);

#endif
