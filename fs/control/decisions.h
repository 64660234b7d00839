/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Writes the reasons for choices of the daemon that no other line of .gpumem/params explains. */
#ifndef FS_CONTROL_DECISIONS_H
#define FS_CONTROL_DECISIONS_H

#include <stdio.h>

struct fs;

/* Writes lines "why.NAME REASON" for .gpumem/params; NAME begins another line there. */
void decisions_write(const struct fs *fs, FILE *out);

#endif
