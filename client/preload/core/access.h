/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Decides whether a file's memory may be used directly, and takes the lease. */
#ifndef CLIENT_PRELOAD_CORE_ACCESS_H
#define CLIENT_PRELOAD_CORE_ACCESS_H

#include <stdbool.h>

#include "client/lib/gpumem.h"
#include "client/preload/core/stats.h"

/* Whether a file is on a FUSE filesystem, so perhaps on gpumemfs. Sends a request to the
 * filesystem's daemon. */
bool access_may_be(int fd);
/* Whether the file is on a mount of gpumemfs. Sends a request to the file system. */
bool access_is_on_mount(int fd);

/* In the functions below fd may be an O_PATH descriptor.
 *
 * The kind of a file's mount. ACCESS_NONE, with the reason in *reason: not gpumemfs, a file of
 * host/ (whose mappings are direct anyway), or a mount with a page cache, which would miss direct
 * stores.
 */
enum access_kind { ACCESS_NONE, ACCESS_GPU, ACCESS_SIMULATED };
enum access_kind access_kind(int fd, enum stats_left *reason);

/* Takes a lease of the file's own memory, never of a copy, for writing if the process has that
 * right; *writable tells. NULL, with the reason in *reason. ACCESS_STORES: the program stores
 * through a mapping, and the daemon moves the file's times. ACCESS_TIMED: the library tells the
 * kernel of stores. ACCESS_LOADS: nothing is stored. */
enum access_times { ACCESS_STORES, ACCESS_TIMED, ACCESS_LOADS };
gpumem *access_lease(int fd, enum access_times times, bool *writable, enum stats_left *reason);

#endif
