/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/last_open/last_open.h"

#include <inttypes.h>

#include "common/clock.h"
#include "fs/tree/inode_hooks.h"

/* The state of an inode is the time itself, in seconds since the epoch: 0 until a process opens the
 * file under this daemon. */
static void last_open_set(struct inode *inode)
{
	void *now = (void *)(uintptr_t)(time_now_coarse() / CLOCK_SECOND);

	if (atomic_load_explicit(&inode->states[INODE_LAST_OPEN], memory_order_relaxed) != now)
		atomic_store_explicit(&inode->states[INODE_LAST_OPEN], now, memory_order_relaxed);
}

static int last_open_print(struct inode *inode, enum attr_id id, FILE *out)
{
	uintptr_t seconds =
	    (uintptr_t)atomic_load_explicit(&inode->states[INODE_LAST_OPEN], memory_order_relaxed);

	if (id != ATTR_LAST_OPEN || !seconds)
		return -ENODATA;
	return fprintf(out, "%" PRIuPTR, seconds) < 0 ? -ENOMEM : 0;
}

const struct inode_hooks last_open_hooks = {
    .opened = last_open_set,
    .attribute = last_open_print,
};
