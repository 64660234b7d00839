/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tells the next daemon which record an inode has and where the bytes are, in case this daemon is
 * killed: an extended attribute ("17", "17 away") that the journal keeps and no program sees. */
#ifndef FS_SPOOL_NOTE_H
#define FS_SPOOL_NOTE_H

#include <stdint.h>

#include "fs/tree/inode_hooks.h"

/* Reads the inode's note: 0, or -ENODATA if there is no valid note. */
int spool_noted(struct inode *inode, uint64_t *id, enum inode_residency *residency);
/* Notes on the root that every record has its inode: a daemon that finds this note creates no
 * inode from a record. */
int spool_note_done(struct fs *fs);
bool spool_is_done(struct fs *fs);

#endif
