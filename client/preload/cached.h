/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The files that this process has mapped through the page cache. Entries are never removed: a
 * mapping can outlive every descriptor. Callers hold a lock of their own. */
#ifndef CLIENT_PRELOAD_CACHED_H
#define CLIENT_PRELOAD_CACHED_H

#include <stdbool.h>

#include "client/preload/identity.h"

void cached_add(const struct slot_identity *identity);
/* True for all files as well when more were added than the table holds. */
bool cached_has(const struct slot_identity *identity);

#endif
