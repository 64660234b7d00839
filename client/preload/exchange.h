/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Exchanges what stands at the addresses of a range: the file's memory, or the kernel's mapping.
 * Callers hold the mapping lock, unless told otherwise. The functions may remove ranges from the
 * table, and then other ranges change their numbers. */
#ifndef CLIENT_PRELOAD_EXCHANGE_H
#define CLIENT_PRELOAD_EXCHANGE_H

#include "client/preload/core/stats.h"
#include "client/preload/place.h"
#include "client/preload/range.h"

/* Leases the file of fd as the range needs, and looks whether the range fits. NULL with the reason.
 * A process that has ranges of the file with cached set, and wants to store, calls
 * exchange_all_direct first. */
struct mapping *exchange_lease(int fd, const struct range *range, enum stats_left *why);

/* Turns the i-th range into the kernel's mapping of the file, and removes it: 0 or -errno. */
int exchange_kernel(unsigned i, enum place_by by);

/* Puts the file's memory in the place of the kernel's mappings of a device's inode (0: of all its
 * inodes), each in one step: a thread that loads meanwhile finds either. Where that fails, the
 * kernel's mapping stays, and is no range any more. */
void exchange_all_direct(uint64_t device, uint64_t inode);
void exchange_direct(unsigned i);

/* Gives the i-th range, whose file is direct, a lease for stores, and the memory of that lease: 0
 * or -errno. */
int exchange_writable(unsigned i);

/* Without the lock: whether a thread with the lock is asking for a lease for stores into that file,
 * of which no range is left that has cached set. */
bool exchange_asks_to_store(uint64_t device, uint64_t inode);

#endif
