/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Puts a file's memory, or the kernel's mapping of the file, at the program's address. */
#ifndef CLIENT_PRELOAD_PLACE_H
#define CLIENT_PRELOAD_PLACE_H

#include "client/preload/range.h"

/* Reserves addresses as the request's flags and address say. MAP_FAILED with errno. */
char *place_reserve(char *address, size_t bytes, int flags);

/* Moves libgpumem's mapping, from the range's offset on, to the range's addresses, and protects it.
 * After an error the addresses may hold any mapping. */
int place_direct(const struct range *range);

/* Replaces the range by the kernel's mapping of the file, in one step. 0 or -errno. PLACE_IN_CHILD:
 * this thread opens the file, as a new child has no locks to lose. */
enum place_by { PLACE_PRIVATE_TABLE, PLACE_IN_CHILD };
int place_kernel(const struct range *range, enum place_by method);

#endif
