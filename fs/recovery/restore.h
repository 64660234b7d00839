/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Opens the journal at a daemon's start: creates a new journal, or restores the tree of an earlier
 * daemon from that daemon's journal. */
#ifndef FS_RECOVERY_RESTORE_H
#define FS_RECOVERY_RESTORE_H

#include "fs/journal/format.h"

struct fs;
struct fdstore_ops;

/* What fs_restore needs of the backend; all empty if there was no daemon before. */
struct restore_devices {
	char backend[16]; /* "cuda"; empty also if the last daemon did not note its backend */
	char gpus[JOURNAL_VOLUMES * 48]; /* UUIDs, separated by commas, as gpus= has them */
};

/* Called before the backend is opened, perhaps while another daemon still writes to the journal. A
 * journal that cannot be read is left to fs_restore_check. */
void fs_restore_devices(const struct fdstore_ops *fdstore, struct restore_devices *devices);

/* Called after the volumes are open and empty, before there is a tree. If fs->fdstore_ops holds the
 * journal of an earlier daemon, restores that daemon's tree: names, inode numbers, attributes,
 * times and memory, and, with FS_MOUNT_KEPT, handles and lookups. Else creates a new journal and a
 * new tree. 0, or -errno with a log line. After an error nothing of the earlier daemon is lost:
 * -EUCLEAN if the journal cannot be read or is inconsistent, -ENODEV if a GPU is missing. */
int fs_restore(struct fs *fs);
/* Frees the files of a daemon that cannot start (journal_leave), without a change that the next
 * daemon would see. */
void fs_restore_leave(struct fs *fs);

/* Whether fs_restore could read the held journal. Another daemon may still write to the journal,
 * so only the header is checked. 0, or -errno with a log line. */
int fs_restore_check(const struct fdstore_ops *fdstore);

/* Called after the tree is freed: drops all held descriptors. */
void fs_forget_held(struct fs *fs);

#endif
