/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A daemon that was killed may have read that the kernel forgets an inode, which is said once. Its
 * successors ask the kernel about inodes that have nothing but its lookups left, and let go of
 * those that it does not know. */
#ifndef FS_FUSE_LOOKUP_GC_H
#define FS_FUSE_LOOKUP_GC_H

struct fs;
struct fuse_session;
struct lookup_gc;

/* NULL where no thread can be had: then they stay until the mount ends. */
struct lookup_gc *lookup_gc_start(struct fs *fs, struct fuse_session *fuse);
/* NULL is fine. */
void lookup_gc_stop(struct lookup_gc *lookup_gc);

#endif
