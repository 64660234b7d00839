/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Frees inodes after a lost forget. The kernel sends each forget once, and a daemon may be killed
 * after reading a forget. The next daemon asks the kernel about inodes with lookups but without
 * names, handles and leases, and frees the inodes unknown to the kernel. */
#ifndef FS_FUSE_LOOKUP_GC_H
#define FS_FUSE_LOOKUP_GC_H

struct session;

/* Starts session->lookup_gc. If the thread cannot be started, such inodes stay until the mount
 * ends. */
void lookup_gc_start(struct session *session);

#endif
