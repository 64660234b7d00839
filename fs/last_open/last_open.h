/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The attribute last_open: when a process last opened a file, which also begins every lease. No
 * time of stat(2) says so: reads of a lease or a mapping do not change atime, and relatime changes
 * it once a day. */
#ifndef FS_LAST_OPEN_LAST_OPEN_H
#define FS_LAST_OPEN_LAST_OPEN_H

extern const struct inode_hooks last_open_hooks;

#endif
