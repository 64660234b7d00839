/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* fusermount3(1), a set-user-ID program by which users unmount their own FUSE mounts. */
#ifndef CLIENT_CLI_FUSERMOUNT_H
#define CLIENT_CLI_FUSERMOUNT_H

/* Unmounts the name in the directory folder. Of umount2(2)'s flags, MNT_DETACH counts. The exit
 * status, after a message unless 0, or -EBUSY without a message. */
int fusermount_execute(int folder, const char *name, int flags);

#endif
