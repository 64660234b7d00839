/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The mappings of files that are direct: the program's mapping is the file's memory itself. A range
 * is one such mapping, at the address that the program asked for; the kernel does most calls on it,
 * and the library keeps the books. A range that must become the kernel's mapping of the file does
 * so at the same address.
 *
 * A shared mapping of GPU memory that the program only loads from is the kernel's mapping at first,
 * whose pages are many times faster, under a read delegation of the daemon. It becomes direct, at
 * the same address, before another process or the program itself stores. */
#ifndef CLIENT_PRELOAD_MAPPING_H
#define CLIENT_PRELOAD_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "client/preload/core/request.h"
#include "client/preload/slot.h"

/* GPUMEM_PRELOAD_MAP=0 leaves mappings to the kernel. */
void mapping_start(void);

/* Whether the kernel makes the mapping, of GPU memory that the program only loads from
 * (MAPPING_PAGES), under a read delegation (MAPPING_CACHED), or the library. */
enum mapping_by { MAPPING_BY_KERNEL, MAPPING_PAGES, MAPPING_CACHED, MAPPING_SERVED };
/* MAPPING_SERVED, MAPPING_CACHED: made, with the address, or with MAP_FAILED and errno. */
enum mapping_by mapping_map(const struct mapping_request *request, void **address);
/* A mapping by the kernel was made. */
void mapping_was_left(const struct mapping_request *request, enum mapping_by maker, void *address);

/* Makes the kernel's mapping over ranges (MAP_FIXED), with these flags: a recall at the same time
 * puts no memory over the new mapping. With the results of mmap. */
void *mapping_map_over(const struct mapping_request *request, int flags);

/* Whether a range lies there. Cheap for a program without ranges. */
bool mapping_touches(const void *address, size_t bytes);

/* munmap, mprotect and msync of addresses that touch a range, with the kernel's results. */
int mapping_unmap(void *address, size_t bytes);
int mapping_protect(void *address, size_t bytes, int protection);
int mapping_sync(void *address, size_t bytes, int flags);

struct mapping_remap {
	char *old;
	size_t old_bytes, new_bytes;
	int flags;
	char *target;
};
/* Does mremap's work for ranges. False: the kernel can do the call now. */
bool mapping_remap(const struct mapping_remap *remap, void **address);

/* Turns all ranges of a file into the kernel's mappings and ends their leases. Whether there was a
 * range. */
bool mapping_yield(const struct slot_identity *identity);

/* Around fork(2). */
void mapping_before_fork(void);
void mapping_after_fork(void);
void mapping_forked(void);

#endif
