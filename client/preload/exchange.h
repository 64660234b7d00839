/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Exchanges the mapping at the addresses of a range: the file's memory, or the kernel's mapping.
 * Callers hold the lock of the table, unless told otherwise. The functions may remove ranges from
 * the table, and then other ranges change their numbers. */
#ifndef CLIENT_PRELOAD_EXCHANGE_H
#define CLIENT_PRELOAD_EXCHANGE_H

#include "client/preload/core/stats.h"
#include "client/preload/place.h"
#include "client/preload/range.h"

/* Leases the file of fd as the range needs. NULL with the reason. Without the lock: before a lease
 * for stores the daemon waits for the answers of other processes, which may be waiting for this
 * one's. */
struct mapping *exchange_lease(int fd, const struct range *range, enum stats_left *reason);

/* Leases, for stores, a file whose memory is mapped already. NULL: the process may not store, or
 * there is no such lease. */
gpumem *exchange_lease_to_store(int fd);

/* Whether a leased file has all of the range. */
bool exchange_reaches(struct mapping *mapping, const struct range *range, enum stats_left *reason);
/* Whether the range is worth the import of the file. */
bool exchange_pays(const struct mapping *mapping, const struct range *range,
		   enum stats_left *reason);

/* Turns the i-th range into the kernel's mapping of the file, and removes it: 0 or -errno. */
int exchange_kernel(unsigned i, enum place_by method);
/* Turns all ranges of a file into the kernel's mappings, as stores into its memory do not show in
 * the kernel's pages. */
int exchange_file_kernel(const struct slot_identity *identity);

/* Puts the file's memory in the place of the kernel's mappings of a device's inode (0: of all its
 * inodes): a thread that loads meanwhile finds either. Where that fails, all ranges of the file
 * become the kernel's. */
void exchange_all_direct(uint64_t device, uint64_t inode);
void exchange_direct(unsigned i);

#endif
