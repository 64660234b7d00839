/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The operations on the file .gpumem/accesslog, whose reads wait for lines. A read without lines is
 * put aside, so that no worker waits, and a thread of this module answers the read when lines come.
 */
#ifndef FS_CONTROL_ACCESS_LOG_FILE_H
#define FS_CONTROL_ACCESS_LOG_FILE_H

#include <fuse_lowlevel.h>

struct fs;

/* Before requests are served: 0 or -ENOMEM. */
int access_file_new(struct fs *fs);
/* After the last request. NULL is fine. */
void access_file_free(struct fs *fs);

/* From here on readers get the remaining lines, and then the end of the file, so that a process
 * which follows the log does not hold the mount. Not to be called by a thread that serves requests.
 * Returns when the waiting reads are answered. */
void access_file_end(struct fs *fs);

/* access_file_open and access_file_read reply to the request. */
void access_file_open(fuse_req_t req, struct fuse_file_info *info);
void access_file_read(fuse_req_t req, size_t bytes, struct fuse_file_info *info);
void access_file_release(fuse_req_t req, struct fuse_file_info *info);

#endif
