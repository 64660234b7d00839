/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* .gpumem/accesslog as a file: reads that wait for lines. A read that finds none is put aside, so
 * that no worker waits with it, and answered by a thread of its own when there are some. */
#ifndef FS_CONTROL_ACCESS_LOG_FILE_H
#define FS_CONTROL_ACCESS_LOG_FILE_H

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>

struct fs;

/* Before requests are served and after: 0 or -ENOMEM. */
int access_file_new(struct fs *fs);
/* NULL is fine. */
void access_file_free(struct fs *fs);

/* From here on readers get what is left, and then the end of the file: who follows the log must not
 * keep the mount. From no thread that serves requests; returns when those that waited are answered.
 */
void access_file_end(struct fs *fs);

/* Each but the last replies. */
void access_file_open(fuse_req_t req, struct fuse_file_info *info);
void access_file_read(fuse_req_t req, size_t bytes, struct fuse_file_info *info);
void access_file_release(fuse_req_t req, struct fuse_file_info *info);

#endif
