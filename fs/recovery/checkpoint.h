/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Compaction of the journal while it is in use: all that there is is recorded anew in the other
 * area, inode by inode, each under its own locks and no longer than those take; then what was
 * before is dropped. Nobody waits for it but who finds an area full. */
#ifndef FS_RECOVERY_CHECKPOINT_H
#define FS_RECOVERY_CHECKPOINT_H

struct fs;

/* Now, in the calling thread, after any that is under way. */
void checkpoint(struct fs *fs);

/* The thread that does it when an area fills. Nothing happens without a journal. */
void checkpoint_start(struct fs *fs);
void checkpoint_end(struct fs *fs);

#endif
