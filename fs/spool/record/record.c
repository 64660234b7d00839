/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A record in memory: its names, runs and blocks. */
#include "fs/spool/record/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "fs/tree/xattr.h"

void spool_record_free(struct spool_record *record)
{
	for (size_t i = 0; i < record->n_names; i++)
		free(record->names[i].name);
	free(record->names);
	free(record->runs);
	free(record->blocks);
	free(record->target);
	free(record->device);
	xattr_free(record->xattrs);
	*record = (struct spool_record){0};
}

int spool_record_add_name(struct spool_record *record, uint64_t dir, const char *name)
{
	struct spool_name *names = vector_grow(record->names, record->n_names, sizeof(*names));

	if (!names)
		return -ENOMEM;
	record->names = names;
	char *copy = strdup(name);

	if (!copy)
		return -ENOMEM;
	record->names[record->n_names++] = (struct spool_name){dir, copy};
	return 0;
}

int spool_record_add_run(struct spool_record *record, uint64_t from, uint64_t bytes)
{
	struct spool_run *runs = vector_grow(record->runs, record->n_runs, sizeof(*runs));

	if (!runs)
		return -ENOMEM;
	record->runs = runs;
	record->runs[record->n_runs++] = (struct spool_run){from, bytes};
	return 0;
}

int spool_record_find_blocks(struct spool_record *record)
{
	uint64_t next = 0;

	free(record->blocks);
	record->blocks = NULL;
	record->n_blocks = 0;
	for (size_t i = 0; i < record->n_runs; i++) {
		const struct spool_run *run = &record->runs[i];
		uint64_t index = run->from / SPOOL_BLOCK;

		for (index = index < next ? next : index;
		     index * SPOOL_BLOCK < run->from + run->bytes; next = ++index) {
			struct spool_block *blocks =
			    vector_grow(record->blocks, record->n_blocks, sizeof(*blocks));

			if (!blocks)
				return -ENOMEM;
			record->blocks = blocks;
			record->blocks[record->n_blocks++] = (struct spool_block){.index = index};
		}
	}
	return 0;
}

static int block_by_index(const void *key, const void *element)
{
	uint64_t index = *(const uint64_t *)key;
	const struct spool_block *block = element;

	return index < block->index ? -1 : index > block->index;
}

struct spool_block *spool_record_block(const struct spool_record *record, uint64_t index)
{
	if (!record->n_blocks)
		return NULL;
	return bsearch(&index, record->blocks, record->n_blocks, sizeof(*record->blocks),
		       block_by_index);
}

size_t spool_block_bytes(const struct spool_record *record, uint64_t index)
{
	uint64_t remaining = record->size - index * SPOOL_BLOCK;

	return remaining < SPOOL_BLOCK ? remaining : SPOOL_BLOCK;
}
