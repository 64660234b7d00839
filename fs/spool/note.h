/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which record an inode has, for the daemon that goes on where this one was killed: an extended
 * attribute that the journal keeps and nobody sees, "17" or "17 away". */
#ifndef FS_SPOOL_NOTE_H
#define FS_SPOOL_NOTE_H

#include <stdint.h>

#include "fs/tree/inode_watch.h"

/* What the inode's note says: 0, or -ENODATA where it has none or one that says nothing. */
int spool_noted(struct inode *inode, uint64_t *id, enum inode_residency *residency);
/* All that was in the spool has its inode: a daemon that finds this noted makes none any more. */
int spool_note_done(struct fs *fs);
bool spool_is_done(struct fs *fs);

#endif
