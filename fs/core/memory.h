/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory out of which the kernel copies replies. */
#ifndef FS_CORE_MEMORY_H
#define FS_CORE_MEMORY_H

#include <stddef.h>

/* Populated memory whose pages never move: a page fault while the kernel copies a reply can fail
 * the reply if the daemon is killed. NULL: there is no memory. */
void *memory_populate(size_t bytes);
void memory_free(void *memory, size_t bytes); /* memory may be NULL */

#endif
