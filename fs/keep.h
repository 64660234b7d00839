/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the keeper holds for the daemon, so that it is there for the next one: descriptors, each
 * under an id. */
#ifndef FS_KEEP_H
#define FS_KEEP_H

#include <stdint.h>

enum keep_kind { KEEP_FUSE = 1, KEEP_CLONE, KEEP_JOURNAL, KEEP_CHUNK, KEEP_HOST, KEEP_SOCKET };

#define KEEP_NUMBER_BITS 56

static inline uint64_t keep_id(enum keep_kind kind, uint64_t number)
{
	return (uint64_t)kind << KEEP_NUMBER_BITS | number;
}

static inline enum keep_kind keep_kind_of(uint64_t id)
{
	return (enum keep_kind)(id >> KEEP_NUMBER_BITS);
}

#endif
