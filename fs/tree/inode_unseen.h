/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stores into a file without a request to the daemon.
 *
 * A lease for writing: every byte may change at any time, so mtime moves with every reply, and the
 * kernel may not cache attributes.
 *
 * The object of a host/ file that the kernel has (passthrough) or that a program may still have.
 *
 * Pages of the kernel: a program stores into a mapped page, and the kernel writes the page back at
 * msync(2), or at munmap(2) at the latest. The daemon cannot ask for these bytes while a request is
 * served (page_drop.c says why), but the kernel had to read each page before the first store. So
 * while a handle can write, and a mapping counts as a handle, every page that was read may have
 * newer bytes than the file. The pages are kept as one range, in granules of 2 MiB; the next daemon
 * learns only whether there are any. */
#ifndef FS_TREE_INODE_UNSEEN_H
#define FS_TREE_INODE_UNSEEN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "fs/tree/inode.h"

#define INODE_PAGES_SHIFT 21
/* inode->unseen.pages: the first granule in the upper half, the end in the lower half; 0: no pages.
 * An end of INODE_PAGES_MAX is the end of the file. */
#define INODE_PAGES_HALF 16
#define INODE_PAGES_MAX	 UINT16_MAX
#define INODE_PAGES_ALL	 UINT16_MAX /* from 0 on */

struct inode_pages {
	uint64_t from, to; /* bytes */
};

/* The kernel reads these bytes into pages. Any thread. Whether the range has become wider. */
static inline bool inode_pages_add(struct inode *inode, uint64_t offset, uint64_t bytes)
{
	uint64_t granule = offset >> INODE_PAGES_SHIFT;
	uint64_t next = ((offset + (bytes ? bytes - 1 : 0)) >> INODE_PAGES_SHIFT) + 1;
	uint32_t first = granule < INODE_PAGES_MAX ? (uint32_t)granule : INODE_PAGES_MAX - 1;
	uint32_t end = next < INODE_PAGES_MAX ? (uint32_t)next : INODE_PAGES_MAX;
	uint32_t pages = atomic_load_explicit(&inode->unseen.pages, memory_order_relaxed), wider;

	if (!pages)
		file_set_paged(inode->file, true);
	do {
		uint32_t old_first = pages >> INODE_PAGES_HALF, old_end = pages & INODE_PAGES_MAX;

		if (old_end && old_first <= first && end <= old_end)
			return false;
		wider = (old_end && old_first < first ? old_first : first) << INODE_PAGES_HALF |
			(old_end > end ? old_end : end);
	} while (!atomic_compare_exchange_weak(&inode->unseen.pages, &pages, wider));
	return true;
}

/* The kernel has no pages any more, as no handle is open. lock is held. */
static inline void inode_pages_clear(struct inode *inode)
{
	atomic_store(&inode->unseen.pages, 0);
	file_set_paged(inode->file, false);
}

/* The pages that may have newer bytes than the file; from == to: none. The kernel maps an object
 * without pages of its own. lock is held. */
static inline struct inode_pages inode_dirty_pages(struct inode *inode)
{
	bool may_store = inode->uses.writers && !*file_backing_id(inode->file);
	uint32_t pages = may_store ? atomic_load(&inode->unseen.pages) : 0;
	uint64_t first = pages >> INODE_PAGES_HALF, end = pages & INODE_PAGES_MAX;

	return (struct inode_pages){
	    .from = first << INODE_PAGES_SHIFT,
	    .to = end == INODE_PAGES_MAX ? UINT64_MAX : end << INODE_PAGES_SHIFT,
	};
}

/* Programs such as tar take a file without blocks for a hole as a whole, so dirty pages count as a
 * block before any of them has reached the file's memory. lock is held. */
static inline void inode_unseen_count_block(struct inode *inode, struct stat *st)
{
	struct inode_pages pages = inode_dirty_pages(inode);

	if (pages.from < pages.to && pages.from < (uint64_t)st->st_size && !st->st_blocks)
		st->st_blocks = POOL_BLOCK_MIN / 512;
}

/* Moves mtime and ctime of a file that is leased for writing. lock is held. */
static inline void inode_unseen_touch(struct inode *inode)
{
	int64_t now = time_now();

	inode_set_mtime(inode, now);
	atomic_store(&inode->fields->ctime, now);
}

/* Whether stores may happen now, so that the kernel may cache no attributes of the regular file. */
static inline bool inode_has_unseen_stores(struct inode *inode)
{
	bool object = atomic_load_explicit(file_backing_id(inode->file), memory_order_relaxed);

	if (atomic_load(&inode->unseen.leases) || atomic_load(&inode->unseen.listing))
		return true;
	if (!object && !atomic_load_explicit(&inode->unseen.pages, memory_order_relaxed))
		return false;
	scoped_lock(&inode->lock);
	return inode->uses.writers;
}

#endif
