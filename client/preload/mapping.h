/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the program has mapped, as far as it is the memory itself. A range lies where the program
 * wanted it and is one of its own: most calls are the kernel's, with book-keeping behind. Where a
 * range has to become the kernel's mapping of the file, it does so at the same address. */
#ifndef CLIENT_PRELOAD_MAPPING_H
#define CLIENT_PRELOAD_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "client/preload/request.h"
#include "client/preload/slot.h"

/* GPUMEM_PRELOAD_MAP=0: mappings are left to the kernel. */
void mapping_start(void);

/* True: served, with the address, or MAP_FAILED and errno. */
bool mapping_map(const struct mapping_request *request, void **address);
/* The kernel has mapped a file instead, or something else, perhaps over ranges of ours. */
void mapping_was_left(const struct mapping_request *request, void *address);

/* Whether a range lies there. Cheap for a program that has none. */
bool mapping_touches(const void *address, size_t bytes);

/* munmap, mprotect and msync of addresses that touch a range: as the kernel's. */
int mapping_unmap(void *address, size_t bytes);
int mapping_protect(void *address, size_t bytes, int protection);
int mapping_sync(void *address, size_t bytes, int flags);

struct mapping_remap {
	char *old;
	size_t old_bytes, new_bytes;
	int flags;
	char *target;
};
/* The same for mremap; false: the kernel can do it now. */
bool mapping_remap(const struct mapping_remap *remap, void **address);

/* All ranges of a file become the kernel's, and their leases end: whether there were any. */
bool mapping_yield(const struct slot_identity *identity);

/* Around fork. */
void mapping_before_fork(void);
void mapping_after_fork(void);
void mapping_forked(void);

#endif
