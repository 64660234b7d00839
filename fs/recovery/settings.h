/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stores the settings of .gpumem/params (limits, log level, tracing) in memory that outlives the
 * daemon, so that the next daemon of the mount has the same settings. */
#ifndef FS_RECOVERY_SETTINGS_H
#define FS_RECOVERY_SETTINGS_H

struct fs;

/* Applies the settings of an earlier daemon of the mount, or makes memory for settings. 0, also
 * without a keeper, or -errno after a log line. To be called before requests are served. */
int settings_open(struct fs *fs);
/* Stores the current settings. To be called after each change, by one thread at a time. */
void settings_note(struct fs *fs);
void settings_close(struct fs *fs);

#endif
