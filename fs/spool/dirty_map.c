/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The dirty map: one bit per block, set if the block changed since the last save. A writer sets the
 * bit after the write. A save takes the map before reading the bytes, so the save misses no change.
 */
#include <errno.h>
#include <stdlib.h>

#include "fs/spool/internal.h"
#include "fs/tree/inode.h"

/* In a larger file one bit stands for several blocks. */
#define BITS_MAX (1ULL << 20)

static struct spool_dirty_map dirty_map_new(uint64_t size)
{
	struct spool_dirty_map marks = {0};
	uint64_t blocks = size / SPOOL_BLOCK + 1;

	while (blocks >> marks.shift > BITS_MAX)
		marks.shift++;
	marks.bits = (blocks >> marks.shift) + 1;
	marks.words = calloc(marks.bits / 64 + 1, sizeof(*marks.words));
	return marks;
}

int spool_dirty_map_renew(struct spool_file *file, uint64_t size, struct spool_dirty_map *old_map)
{
	struct spool_dirty_map new_map = dirty_map_new(size);

	if (!new_map.words)
		return -ENOMEM;
	brlock_write_lock(&file->marks_lock);
	*old_map = file->marks;
	file->marks = new_map;
	brlock_write_unlock(&file->marks_lock);
	return 0;
}

bool spool_marked(const struct spool_dirty_map *marks, uint64_t index)
{
	uint64_t bit = index >> marks->shift;

	return !marks->words || bit >= marks->bits ||
	       (atomic_load(&marks->words[bit / 64]) >> bit % 64 & 1);
}

static void dirty_map_set(struct spool_dirty_map *marks, uint64_t first, uint64_t last)
{
	if (!marks->words || first >= marks->bits)
		return;
	if (last >= marks->bits)
		last = marks->bits - 1;
	for (uint64_t bit = first; bit <= last; bit++) {
		_Atomic uint64_t *word = &marks->words[bit / 64];
		uint64_t mask = 1ULL << bit % 64;

		/* The bit is usually set already, and a cache line that is only read stays shared.
		 */
		if (!(atomic_load_explicit(word, memory_order_relaxed) & mask))
			atomic_fetch_or(word, mask);
	}
}

void spool_mark_dirty(struct inode *inode, uint64_t from, uint64_t bytes)
{
	struct spool_file *file = inode_spool_file(inode);

	if (!file || !bytes)
		return;
	uint64_t end = from + bytes < from ? UINT64_MAX : from + bytes;
	brlock_token token = brlock_read_lock(&file->marks_lock);
	unsigned shift = file->marks.shift;

	dirty_map_set(&file->marks, from / SPOOL_BLOCK >> shift, (end - 1) / SPOOL_BLOCK >> shift);
	brlock_read_unlock(&file->marks_lock, token);
}

void spool_mark_unknown(struct inode *inode)
{
	struct spool_file *file = inode_spool_file(inode);

	if (file)
		atomic_store(&file->unknown, true);
}
