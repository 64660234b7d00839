/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What was set in .gpumem/params, in memory that outlives the daemon: limits, level and tracing are
 * the mount's. */
#ifndef FS_RECOVERY_SETTINGS_H
#define FS_RECOVERY_SETTINGS_H

struct fs;

/* Sets what an earlier daemon of the mount was told, or begins to note: 0, also without a keeper,
 * or -errno after a line in the log. Before requests are served. */
int settings_open(struct fs *fs);
/* After a change; one at a time. */
void settings_note(struct fs *fs);
void settings_close(struct fs *fs);

#endif
