/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* An allocator whose memory is a file that grows: its device addresses are reserved once, and the
 * file is extended in steps. The functions return 0 or -errno; gpumem.h has the contracts. */
#ifndef CLIENT_LIB_ARENA_ARENA_H
#define CLIENT_LIB_ARENA_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct gpumem_arena;

int client_arena_open(const char *path, size_t reserve, int flags, struct gpumem_arena **arena);
int client_arena_alloc(struct gpumem_arena *arena, size_t bytes, size_t alignment,
		       unsigned long long *address);
int client_arena_free(struct gpumem_arena *arena, unsigned long long address);
int client_arena_park(struct gpumem_arena *arena);
int client_arena_unpark(struct gpumem_arena *arena); /* as gpumem_arena_unpark */
int client_arena_close(struct gpumem_arena *arena);

/* Removes a file that an arena of a killed process left behind, unless the file is to be kept. */
void client_arena_sweep(int folder, const char *name);

#endif
