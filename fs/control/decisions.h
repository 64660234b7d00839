/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Why the mount works as it does, where the reason does not stand beside the thing itself. */
#ifndef FS_CONTROL_DECISIONS_H
#define FS_CONTROL_DECISIONS_H

#include <stdio.h>

struct fs;

/* Lines "why.NAME REASON" for .gpumem/params; NAME is what another line there begins with. */
void decisions_write(const struct fs *fs, FILE *out);

#endif
