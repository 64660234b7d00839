/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Starting with a journal: a new one, or the tree that an earlier daemon had. */
#ifndef FS_RECOVERY_RESTORE_H
#define FS_RECOVERY_RESTORE_H

struct fs;
struct fdstore_ops;

/* Volumes are open and have nothing; there is no tree yet. Where fs->holder holds the journal of an
 * earlier daemon its tree is made again: names, inode numbers, attributes, times, memory, and,
 * where the mount was kept, handles and lookups. Else there is a new journal and a new tree. 0, or
 * -errno with a line in the log, and nothing is lost: -EUCLEAN where the journal cannot be read or
 * says what cannot be, -ENODEV where a GPU is not there any more. */
int fs_restore(struct fs *fs);

/* Whether fs_restore could read what is held, as far as can be said while another daemon writes to
 * it: 0, or -errno with a line in the log. */
int fs_restore_check(const struct fdstore_ops *holder);

/* After the tree is gone: everything that was held is given back. */
void fs_forget_held(struct fs *fs);

#endif
