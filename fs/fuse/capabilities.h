/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Decides what this kernel, libfuse and machine can do for a mount, and writes the decisions to the
 * log. */
#ifndef FS_FUSE_CAPABILITIES_H
#define FS_FUSE_CAPABILITIES_H

#include <fuse_lowlevel.h>
#include <stdbool.h>

/* Whether a write must clear set-id bits; libfuse says so from 3.18.3 on. */
#if FUSE_VERSION > FUSE_MAKE_VERSION(3, 18) ||                                                     \
    (FUSE_VERSION == FUSE_MAKE_VERSION(3, 18) && FUSE_HOTFIX_VERSION >= 3)
#define CAPABILITIES_HAS_KILLS true
static inline bool capabilities_kills(const struct fuse_file_info *info)
{
	return info->kill_suidgid;
}
#else
#define CAPABILITIES_HAS_KILLS false
static inline bool capabilities_kills(const struct fuse_file_info *info)
{
	(void)info;
	return false;
}
#endif

struct fs;

/* The least and greatest default number of worker threads. With more threads than cores, requests
 * make progress while other threads wait for a DMA. */
#define CAPABILITIES_THREADS_MIN 4U
#define CAPABILITIES_THREADS_MAX 32U

/* Whether the kernel has FUSE over io_uring turned on. */
bool capabilities_kernel_has_uring(void);
/* Before the mount: decides the number of threads and io_uring. 0, or -ENOTSUP after a line in the
 * log if io_uring=on is not possible. */
int capabilities_choose(struct fs *fs);
/* While FUSE's INIT is served: asks the kernel for features and records the features of this
 * kernel. */
void capabilities_negotiate(struct fs *fs, struct fuse_conn_info *conn);
/* Writes a line about the mount to the log, and for debugging a line for each capability. */
void capabilities_log(struct fs *fs);

#endif
