/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files that end with the process that allocated their memory (file_adopt): at once no operation
 * gets their bytes, and soon a thread removes their names and gives their memory up. */
#ifndef FS_FUSE_ENDED_FILES_H
#define FS_FUSE_ENDED_FILES_H

#include "fs/core/fs.h"

struct session;

int ended_files_open(struct fs *fs); /* 0 or -ENOMEM */
void ended_files_leave(struct fs *fs);
void ended_files_close(struct fs *fs);
extern const struct inode_hooks ended_files_hooks;

/* Starts the thread, before any request is served. Files may have ended before. No effect without
 * the part, as in a file system of the bench. */
void ended_files_start(struct session *session);
/* Files that are left are ended by the next daemon. */
void ended_files_stop(struct session *session);

#endif
