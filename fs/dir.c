/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "fs/dir.h"

uint64_t hash_seed;

void hash_seed_init(void)
{
	if (getrandom(&hash_seed, sizeof(hash_seed), 0) != sizeof(hash_seed))
		hash_seed = (uint64_t)(uintptr_t)&hash_seed;
}

struct dir *dir_new(void)
{
	struct dir *dir = calloc(1, sizeof(*dir));

	if (!dir)
		return NULL;
	pthread_rwlock_init(&dir->lock, NULL);
	dir->next_cookie = DIR_COOKIE_FIRST;
	dir->max_bytes = dir->max_files = UINT64_MAX;
	return dir;
}

void dir_free(struct dir *dir)
{
	pthread_rwlock_destroy(&dir->lock);
	free(dir->order);
	free(dir);
}

struct dentry *dir_find(struct dir *dir, const char *name)
{
	struct dentry *entry = NULL;

	HASH_FIND(hh, dir->names, name, strlen(name), entry);
	return entry;
}

struct dentry *dentry_new(const char *name, struct inode *inode)
{
	size_t length = strlen(name);
	struct dentry *entry = calloc(1, sizeof(*entry) + length + 1);

	if (!entry)
		return NULL;
	entry->inode = inode;
	entry->length = (uint8_t)length;
	memcpy(entry->name, name, length + 1);
	return entry;
}

/* Drops the removed ones from the list when they are at least half of it; cookies stay. */
static void order_compact(struct dir *dir)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < dir->n_order; i++)
		if (dir->order[i].entry)
			dir->order[kept++] = dir->order[i];
	dir->n_order = kept;
}

static int order_reserve(struct dir *dir)
{
	if (dir->n_order < dir->cap_order)
		return 0;
	if (dir->n_names <= dir->n_order / 2) {
		order_compact(dir);
		if (dir->n_order < dir->cap_order)
			return 0;
	}
	uint32_t capacity = dir->cap_order ? dir->cap_order + dir->cap_order / 2 : 4;
	struct dir_slot *order = realloc(dir->order, capacity * sizeof(*order));

	if (!order)
		return -ENOMEM;
	dir->order = order;
	dir->cap_order = capacity;
	return 0;
}

int dir_add(struct dir *dir, struct dentry *entry)
{
	unsigned before = dir->names ? HASH_COUNT(dir->names) : 0;

	if (order_reserve(dir))
		return -ENOMEM;
	HASH_ADD_KEYPTR(hh, dir->names, entry->name, entry->length, entry);
	/* uthash, told not to exit, leaves the entry out when it has no memory for it. */
	if (!dir->names || HASH_COUNT(dir->names) == before)
		return -ENOMEM;
	entry->cookie = dir->next_cookie++;
	dir->order[dir->n_order++] = (struct dir_slot){entry->cookie, entry};
	dir->n_names++;
	return 0;
}

/* The first position in the list whose cookie is at least this one. */
static uint32_t order_position(const struct dir *dir, uint64_t cookie)
{
	uint32_t low = 0, high = dir->n_order;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (dir->order[middle].cookie < cookie)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void dir_remove(struct dir *dir, struct dentry *entry)
{
	HASH_DEL(dir->names, entry);
	dir->order[order_position(dir, entry->cookie)].entry = NULL;
	dir->n_names--;
	/* A list that is mostly gaps gives its memory back: a directory that held a million names
	 * and is empty again costs no more than a new one. */
	if (dir->n_order >= 64 && dir->n_names <= dir->n_order / 4) {
		order_compact(dir);
		uint32_t capacity = dir->n_names + dir->n_names / 2 + 4;
		struct dir_slot *order = realloc(dir->order, capacity * sizeof(*order));

		if (order) {
			dir->order = order;
			dir->cap_order = capacity;
		}
	}
}

struct dentry *dir_after(struct dir *dir, uint64_t cookie)
{
	for (uint32_t i = order_position(dir, cookie + 1); i < dir->n_order; i++)
		if (dir->order[i].entry)
			return dir->order[i].entry;
	return NULL;
}
