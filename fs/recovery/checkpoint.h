/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Checkpoints compact the journal while the journal is in use: the checkpoint records every inode
 * anew in the other half, each inode under its own locks, and then drops the old half. Only a
 * thread that finds a half full waits for a checkpoint. */
#ifndef FS_RECOVERY_CHECKPOINT_H
#define FS_RECOVERY_CHECKPOINT_H

struct fs;

/* Makes a checkpoint in the calling thread, after a checkpoint that is running. */
void checkpoint(struct fs *fs);

/* Start and end the thread that makes a checkpoint when a half fills. Without a journal both
 * functions do nothing. checkpoint_start gives 0. */
int checkpoint_start(struct fs *fs);
void checkpoint_end(struct fs *fs);

#endif
