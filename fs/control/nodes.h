/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* .gpumem/: what the daemon says of itself. Its node ids lie above every inode's. A file's text is
 * made when it is opened, or at the first read of a handle that a daemon before this one gave out.
 */
#ifndef FS_CONTROL_NODES_H
#define FS_CONTROL_NODES_H

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>

struct fs;

/* The first node id of .gpumem/: its directory. */
#define CONTROL_INO (1ULL << 62)

static inline bool control_owns(fuse_ino_t ino)
{
	return ino >= CONTROL_INO;
}

/* Each replies and returns true where the node is one of .gpumem/'s (or, for lookup, the name
 * .gpumem in the root). */
bool control_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
/* The daemon's binder makes .gpumem/socket; no other process makes anything. */
bool control_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
/* Before requests are served: no handle is given out that another daemon of the mount gave out. */
void control_handles_from(struct fs *fs, uint64_t first);
bool control_getattr(fuse_req_t req, fuse_ino_t ino);
bool control_statx(fuse_req_t req, fuse_ino_t ino);
bool control_readlink(fuse_req_t req, fuse_ino_t ino);
bool control_readdir(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, bool plus);
bool control_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
bool control_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
		  struct fuse_file_info *info);
bool control_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
/* To a file that takes it; elsewhere as control_refuses. */
bool control_write(fuse_req_t req, fuse_ino_t ino, const char *from, size_t bytes);
/* Of a file that can be written to, only the size: O_TRUNC means nothing there. */
bool control_setattr(fuse_req_t req, fuse_ino_t ino, int which);
bool control_lseek(fuse_req_t req, fuse_ino_t ino);
/* Requests that would change something: -EPERM. */
bool control_refuses(fuse_req_t req, fuse_ino_t ino);

#endif
