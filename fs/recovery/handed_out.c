/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The chunks that other processes may have had from earlier daemons. Ids are never given again, so
 * the ids of all records are collected before any chunk is imported. */
#include <errno.h>
#include <stdlib.h>

#include "common/vector.h"
#include "fs/recovery/internal.h"

int restore_handed_out(struct restore *restore, const struct journal_view *view)
{
	const struct journal_handed_out *image = view->fixed;
	const uint64_t *ids = (const void *)view->tail;

	for (uint32_t i = 0; i < image->n_chunks; i++) {
		uint64_t *grown =
		    vector_grow(restore->handed_out, restore->n_handed_out, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		restore->handed_out = grown;
		grown[restore->n_handed_out++] = ids[i];
	}
	return 0;
}

static int by_id(const void *a, const void *b)
{
	uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

	return (first > second) - (first < second);
}

void restore_handed_out_sort(struct restore *restore)
{
	if (restore->n_handed_out)
		qsort(restore->handed_out, restore->n_handed_out, sizeof(*restore->handed_out),
		      by_id);
}

bool restore_was_handed_out(const struct restore *restore, uint64_t id)
{
	size_t at = vector_search(i, restore->n_handed_out, restore->handed_out[i] < id);

	return restore->all_handed_out ||
	       (at < restore->n_handed_out && restore->handed_out[at] == id);
}
