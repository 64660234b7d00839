/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies between the memory of extents, and between the caller's memory and theirs. All enqueue: 0
 * or -errno, and the caller waits for the copier, also after an error. */
#ifndef FS_EXTENTS_EXTENTS_COPY_H
#define FS_EXTENTS_EXTENTS_COPY_H

#include "backend/copy.h"
#include "fs/extents/extents.h"

/* Fills all memory of target with the bytes of from at the same file offsets, and with zeroes in
 * the holes of from. */
int extents_fill(struct copier *copier, const struct extents *target, const struct extents *from);
/* The bytes for holes go nowhere. */
int extents_in(struct copier *copier, const struct extents *to, uint64_t offset, const void *from,
	       uint64_t bytes, enum copy_path path);
/* Holes read as zero. */
int extents_out(struct copier *copier, void *to, const struct extents *from, uint64_t offset,
		uint64_t bytes, enum copy_path path);
/* Holes stay holes. */
int extents_zero(struct copier *copier, const struct extents *extents, uint64_t from, uint64_t to);

#endif
