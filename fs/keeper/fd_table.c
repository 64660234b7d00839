/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/fd_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/vector.h"

static struct fd_table_kind *table_kind(struct fd_table *held, uint64_t id)
{
	uint64_t kind = id >> FD_TABLE_KIND_SHIFT;

	return kind < FD_TABLE_KINDS ? &held->kinds[kind] : NULL;
}

/* The index of the id, or where to insert the id. */
static uint32_t kind_search(const struct fd_table_kind *kind, uint64_t id)
{
	return (uint32_t)vector_search(i, kind->count, kind->at[i].id < id);
}

static struct fd_table_entry *kind_find(const struct fd_table_kind *kind, uint64_t id)
{
	uint32_t at = kind_search(kind, id);

	return at < kind->count && kind->at[at].id == id ? &kind->at[at] : NULL;
}

static void kind_compact(struct fd_table_kind *kind)
{
	uint32_t n_kept = 0;

	for (uint32_t i = 0; i < kind->count; i++)
		if (kind->at[i].fd >= 0)
			kind->at[n_kept++] = kind->at[i];
	kind->count = n_kept;
	kind->dropped = 0;
}

int fd_table_put(struct fd_table *held, uint64_t id, int fd)
{
	struct fd_table_kind *kind = table_kind(held, id);

	if (!kind || fd < 0)
		return -EINVAL;
	struct fd_table_entry *entry = kind_find(kind, id);

	if (entry && entry->fd >= 0) {
		close(entry->fd);
		entry->fd = fd;
		return 0;
	}
	if (entry) {
		kind->dropped--;
	} else {
		struct fd_table_entry *entries =
		    vector_grow(kind->at, kind->count, sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		kind->at = entries;
		uint32_t at = kind_search(kind, id);

		entry = &kind->at[at];
		memmove(entry + 1, entry, (kind->count - at) * sizeof(*entry));
		entry->id = id;
		kind->count++;
	}
	entry->fd = fd;
	held->count++;
	return 0;
}

int fd_table_get(const struct fd_table *held, uint64_t id)
{
	uint64_t number = id >> FD_TABLE_KIND_SHIFT;
	const struct fd_table_entry *entry =
	    number < FD_TABLE_KINDS ? kind_find(&held->kinds[number], id) : NULL;

	return entry && entry->fd >= 0 ? entry->fd : -ENOENT;
}

int fd_table_drop(struct fd_table *held, uint64_t id)
{
	struct fd_table_kind *kind = table_kind(held, id);
	struct fd_table_entry *entry = kind ? kind_find(kind, id) : NULL;

	if (!entry || entry->fd < 0)
		return -ENOENT;
	close(entry->fd);
	entry->fd = -1;
	held->count--;
	/* Closing each gap at once would move all later entries every time. */
	if (++kind->dropped > kind->count / 2)
		kind_compact(kind);
	return 0;
}

int fd_table_next(const struct fd_table *held, uint64_t last_id, uint64_t *id, int *fd)
{
	for (uint64_t number = last_id >> FD_TABLE_KIND_SHIFT; number < FD_TABLE_KINDS; number++) {
		const struct fd_table_kind *kind = &held->kinds[number];

		for (uint32_t at = kind_search(kind, last_id + 1); at < kind->count; at++) {
			if (kind->at[at].fd < 0)
				continue;
			*id = kind->at[at].id;
			*fd = kind->at[at].fd;
			return 0;
		}
	}
	return -ENOENT;
}

void fd_table_close(struct fd_table *held)
{
	for (unsigned number = 0; number < FD_TABLE_KINDS; number++) {
		struct fd_table_kind *kind = &held->kinds[number];

		for (uint32_t i = 0; i < kind->count; i++)
			if (kind->at[i].fd >= 0)
				close(kind->at[i].fd);
		free(kind->at);
	}
	*held = (struct fd_table){0};
}
