/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The process's file descriptors. What users make the daemon hold leaves a reserve for the daemon's
 * own work: sockets, /dev/fuse, the journal, the spool, memory on its way to a sharer. The kernel
 * gives the lowest number that is free, so while descriptors of users stay below the limit less the
 * reserve, those above are free. */
#ifndef COMMON_DESCRIPTORS_H
#define COMMON_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

/* Connections leave half of the reserve, so that files can still be shared when memory has taken
 * all that it may. */
enum descriptor_use { DESCRIPTOR_MEMORY, DESCRIPTOR_CONNECTION, DESCRIPTOR_OWN };

/* Raises the soft limit to the hard one, and says what it is then. */
uint64_t descriptors_raise(void);
uint64_t descriptors_limit(void);
/* How many of so many may be of that use. */
uint64_t descriptors_for(enum descriptor_use use, uint64_t limit);
/* A new descriptor of that use, or -1: it, or -1 with errno EMFILE where it is of the reserve and
 * was closed. */
int descriptor_unreserved(enum descriptor_use use, int fd);

#endif
