/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef CLIENT_PRELOAD_IDENTITY_H
#define CLIENT_PRELOAD_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

/* Which file it is, as the kernel has it. */
struct slot_identity {
	uint64_t device, inode;
};

static inline bool slot_same(const struct slot_identity *a, const struct slot_identity *b)
{
	return a->inode == b->inode && a->device == b->device;
}

#endif
