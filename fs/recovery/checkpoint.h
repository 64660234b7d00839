/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Checkpoints compact the journal while it is in use: every inode is recorded anew in the other
 * half, each under its own locks, and then the old half is dropped. Only a thread that finds a
 * half full waits for a checkpoint. */
#ifndef FS_RECOVERY_CHECKPOINT_H
#define FS_RECOVERY_CHECKPOINT_H

struct fs;

/* Makes a checkpoint in the calling thread, after any other that is running. */
void checkpoint(struct fs *fs);

/* The thread that makes a checkpoint when a half fills. Without a journal both functions do
 * nothing. */
void checkpoint_start(struct fs *fs);
void checkpoint_end(struct fs *fs);

#endif
