/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* xxHash and uthash as this project uses them. In uthash lack of memory is an error instead of the
 * end of the process, and keys are hashed with a secret seed, because users choose names. */
#ifndef COMMON_HASH_H
#define COMMON_HASH_H

#define XXH_INLINE_ALL
/* By memcpy. The default on Arm, a packed union, must not alias objects of other types. */
#define XXH_FORCE_MEMORY_ACCESS 0
#include <xxhash.h>

extern uint64_t hash_seed; /* set once at start by hash_seed_init */
void hash_seed_init(void);

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(key, length, value)                                                          \
	((value) = (unsigned)XXH3_64bits_withSeed((key), (length), hash_seed))

#include <uthash.h>

/* HASH_ADD that reports failure: false if there is no memory; then the item is not in the table. */
#define HASH_ADD_NEW(hh, head, field, bytes, add)                                                  \
	({                                                                                         \
		HASH_ADD(hh, head, field, bytes, add);                                             \
		(add)->hh.tbl != NULL;                                                             \
	})

#endif
