/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Putting a file's memory, or the kernel's mapping of the file, where the program wants it. */
#ifndef CLIENT_PRELOAD_PLACE_H
#define CLIENT_PRELOAD_PLACE_H

#include "client/preload/range.h"

/* Addresses for a mapping: those of request's flags and address. MAP_FAILED with errno. */
char *place_reserve(char *address, size_t bytes, int flags);

/* Moves what libgpumem mapped, from a range's offset on, over its addresses, and protects it. 0 or
 * -errno; then anything may be there. */
int place_direct(const struct range *range);

/* The kernel's mapping of the file takes the range's place in one step. 0 or -errno. in_child: by
 * this thread, which has no locks to lose yet. */
enum place_by { PLACE_APART, PLACE_IN_CHILD };
int place_kernel(const struct range *range, enum place_by by);

#endif
