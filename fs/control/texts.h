/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The texts of files in .gpumem/. */
#ifndef FS_CONTROL_TEXTS_H
#define FS_CONTROL_TEXTS_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "fs/core/control_file.h"

/* Files of no other part; ends with a file without a name. */
extern const struct control_file control_files[];

/* The file with the number id in the mount's parts; NULL: there is none. */
const struct control_file *control_file_find(const struct fs *fs, uint64_t id);

int control_metrics(struct fs *fs, uid_t uid, FILE *out); /* metrics.c */
int control_users(struct fs *fs, uid_t uid, FILE *out);	  /* users.c */

#endif
