/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies between the memory of extents. */
#ifndef FS_EXTENTS_EXTENTS_COPY_H
#define FS_EXTENTS_EXTENTS_COPY_H

#include "backend/copy.h"
#include "fs/extents/extents.h"

/* Enqueues copies that fill all memory of fresh with the bytes of from at the same file offsets,
 * and with zeroes in the holes of from: 0 or -errno. The caller waits for the copier, also after an
 * error. */
int extents_fill(struct copier *copier, const struct extents *fresh, const struct extents *from);

#endif
