/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The nodes of .gpumem/: files, links and the socket by which the daemon reports its state. Their
 * node ids are above the ids of all inodes. The text of a file is made when the file is opened, or
 * at the first read of a handle that an earlier daemon gave out. */
#ifndef FS_CONTROL_NODES_H
#define FS_CONTROL_NODES_H

#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/protocol.h"

struct fs;

/* The first node id of .gpumem/: its directory. */
#define CONTROL_INO GPUMEM_INODES_OF_DAEMON

static inline bool control_owns(fuse_ino_t ino)
{
	return ino >= CONTROL_INO;
}

/* Whether the name is .gpumem, which no directory lists. The root's .gpumem has all nodes. Another
 * directory's .gpumem has the socket alone: a process that sees only this directory finds the
 * daemon, but not the state of the whole mount. */
bool control_is_name(const char *name);

/* The operations on the nodes of .gpumem/, and the lookup of its name. An operation that is NULL
 * here is refused (EPERM) by fs/ops. */
extern const struct fuse_lowlevel_ops control_operations;

/* Before requests are served: handles that earlier daemons of the mount gave out are below first.
 */
void control_handles_from(struct fs *fs, uint64_t first);

#endif
