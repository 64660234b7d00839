/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The texts of open files of .gpumem/: a whole text, made at the open, or one piece of a list at a
 * time, made by the reads. Limits bound the texts that each user has open. Thread-safe. */
#ifndef FS_CONTROL_SNAPSHOT_H
#define FS_CONTROL_SNAPSHOT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/core/fs.h"

struct control_file;
struct fs;
struct snapshot;

struct snapshots {
	pthread_mutex_t lock;
	struct snapshot *by_handle;
	uint64_t last_handle;
};

static inline FS_STATE(struct snapshots, snapshots_of, FS_SNAPSHOTS)

    int snapshots_open(struct fs *fs); /* 0 or -ENOMEM */
void snapshots_close(struct fs *fs);

/* For a user that opens the file: 0 with the handle, or -errno. */
int snapshot_open(struct fs *fs, const struct control_file *file, uid_t uid, uint64_t *handle);
/* Opens the file again under a handle that an earlier daemon gave out: 0 or -errno. */
int snapshot_reopen(struct fs *fs, const struct control_file *file, uid_t uid, uint64_t handle);
void snapshot_close(struct fs *fs, uint64_t handle);

/* Copies bytes of the text from the offset on, and returns their number; 0 at the end. A list may
 * give fewer bytes than asked for, and can only be read on from the offset of the last piece.
 * -ENOENT: no such handle. */
ssize_t snapshot_read(struct fs *fs, uint64_t handle, char *to, size_t bytes, uint64_t offset);

#endif
