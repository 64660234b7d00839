/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef CLIENT_PRELOAD_CORE_IDENTITY_H
#define CLIENT_PRELOAD_CORE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

/* The kernel's name of a file: st_dev and st_ino. */
struct slot_identity {
	uint64_t device, inode;
};

static inline bool slot_same(const struct slot_identity *a, const struct slot_identity *b)
{
	return a->inode == b->inode && a->device == b->device;
}

/* The regular file that the kernel has for a descriptor. Sends no request to the daemon. */
bool identity_get(int fd, struct slot_identity *identity);

/* The set of files that this process has mapped through the page cache. Entries are never removed,
 * because a mapping can outlive every descriptor of its file. The caller serialises all calls. */
void identity_add_cached(const struct slot_identity *identity);
/* Also true for every file once the set is full. */
bool identity_is_cached(const struct slot_identity *identity);

#endif
