/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Whether a file's memory may be used directly, and how it is come by. */
#ifndef CLIENT_PRELOAD_ACCESS_H
#define CLIENT_PRELOAD_ACCESS_H

#include <stdbool.h>

#include "client/lib/gpumem.h"
#include "client/preload/stats.h"

/* Whether a file is on a filesystem in user space: perhaps ours. Asks the daemon, whosever it is.
 */
bool access_may_be(int fd);

/* What the file's mount is: the page cache of the kernel, where it is used, would not see what goes
 * past it. ACCESS_NONE: not gpumemfs, a file of host/ (whose mapping is direct anyway), or cached
 * (*why). */
enum access_kind { ACCESS_NONE, ACCESS_GPU, ACCESS_SIMULATED };
enum access_kind access_kind(int fd, enum stats_left *why);

/* A lease of the file's own memory, never of a copy, with the right to write to it if the process
 * has that; *writable tells. NULL, with why. */
gpumem *access_lease(int fd, bool *writable, enum stats_left *why);

#endif
