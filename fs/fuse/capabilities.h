/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What this kernel, libfuse and machine can do for a mount. */
#ifndef FS_FUSE_CAPABILITIES_H
#define FS_FUSE_CAPABILITIES_H

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>
#include <stdbool.h>

/* Whether a write is to take set-id bits away, which libfuse says from 3.18.3 on. */
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

/* Of worker threads by default. More threads than cores keeps requests moving while others wait for
 * a DMA. */
#define CAPABILITIES_THREADS_MIN 4U
#define CAPABILITIES_THREADS_MAX 32U

/* Before the mount: threads, io_uring. 0, or -ENOTSUP after a line where io_uring=on asks for what
 * is not there. */
int capabilities_choose(struct fs *fs);
/* In FUSE's init: asks the kernel for what is wanted and notes what it has. */
void capabilities_negotiate(struct fs *fs, struct fuse_conn_info *conn);
/* A line each to the log. */
void capabilities_log(struct fs *fs);

#endif
