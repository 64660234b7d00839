/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* How deep directories may be nested. Each charge, check of a quota and rename goes through all
 * directories above a file, and users choose how many there are. */
#ifndef FS_TREE_DEPTH_H
#define FS_TREE_DEPTH_H

#include <stdint.h>

struct inode;

/* Below the root of the mount; as many as a path of PATH_MAX bytes can name. */
#define DEPTH_MAX 2000

/* 0, or -ENAMETOOLONG where a directory in parent, with so many levels of directories below it,
 * would be or have one that is too deep. Topology is held. */
int depth_check(const struct inode *parent, uint32_t height);
/* The directory was given its parent: those above learn how many levels they have below them.
 * Topology is held. */
void depth_added(const struct inode *dir);

#endif
