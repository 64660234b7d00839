/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tree/depth.h"

#include <errno.h>

#include "fs/tree/dir.h"
#include "fs/tree/inode.h"

static uint32_t dir_depth(const struct inode *dir)
{
	uint32_t depth = 0;

	while ((dir = dir->dir->parent))
		depth++;
	return depth;
}

int depth_check(const struct inode *parent, uint32_t height)
{
	return dir_depth(parent) + 1 + height > DEPTH_MAX ? -ENAMETOOLONG : 0;
}

/* The way up ends at the first directory that already counts this many levels, because all
 * directories above count enough levels too. A directory from an earlier version may be deeper; the
 * count stops at DEPTH_MAX. */
void depth_added(const struct inode *dir)
{
	uint32_t height = atomic_load_explicit(&dir->dir->height, memory_order_relaxed) + 1;

	for (dir = dir->dir->parent; dir && height <= DEPTH_MAX; dir = dir->dir->parent) {
		_Atomic uint32_t *parent_height = &dir->dir->height;
		uint32_t now = atomic_load_explicit(parent_height, memory_order_relaxed);

		while (now < height && !atomic_compare_exchange_weak(parent_height, &now, height))
			;
		if (now >= height)
			return;
		height++;
	}
}
