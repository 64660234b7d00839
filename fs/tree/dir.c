/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "common/vector.h"
#include "fs/tree/dir.h"

/* The number of buckets doubles above NAMES_PER_BUCKET names per bucket, and halves when there are
 * more than BUCKETS_PER_NAME buckets per name. */
#define NAMES_PER_BUCKET 2
#define BUCKETS_PER_NAME 8
#define BUCKETS_MIN	 8

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
	free(dir->buckets);
	free(dir);
}

static uint32_t name_hash(const char *name, size_t length)
{
	return (uint32_t)XXH3_64bits_withSeed(name, length, hash_seed);
}

static struct dentry **name_bucket(const struct dir *dir, uint32_t hash)
{
	return &dir->buckets[hash & (dir->n_buckets - 1)];
}

struct dentry *dir_find(struct dir *dir, const char *name)
{
	size_t length = strlen(name);
	uint32_t hash = name_hash(name, length);
	struct dentry *entry = dir->buckets ? *name_bucket(dir, hash) : NULL;

	while (entry && (entry->hash != hash || entry->length != length ||
			 memcmp(entry->name, name, length) != 0))
		entry = entry->next;
	return entry;
}

/* Without memory for the new array the directory keeps the old buckets. Only a directory without
 * buckets gets -ENOMEM. */
static int buckets_resize(struct dir *dir, uint32_t n)
{
	struct dentry **old = dir->buckets, *entry, *next;
	uint32_t n_old = dir->n_buckets;
	struct dentry **buckets = calloc(n, sizeof(struct dentry *));

	if (!buckets)
		return old ? 0 : -ENOMEM;
	dir->buckets = buckets;
	dir->n_buckets = n;
	for (uint32_t i = 0; i < n_old; i++) {
		for (entry = old[i]; entry; entry = next) {
			struct dentry **bucket = name_bucket(dir, entry->hash);

			next = entry->next;
			entry->next = *bucket;
			*bucket = entry;
		}
	}
	free(old);
	return 0;
}

static int buckets_reserve(struct dir *dir)
{
	if (!dir->buckets)
		return buckets_resize(dir, BUCKETS_MIN);
	if (dir->n_names < (uint64_t)dir->n_buckets * NAMES_PER_BUCKET ||
	    dir->n_buckets > UINT32_MAX / 4)
		return 0;
	return buckets_resize(dir, dir->n_buckets * 2);
}

static void bucket_add(struct dir *dir, struct dentry *entry)
{
	struct dentry **bucket = name_bucket(dir, entry->hash);

	entry->next = *bucket;
	*bucket = entry;
	dir->n_names++;
}

static void bucket_remove(struct dir *dir, struct dentry *entry)
{
	struct dentry **link = name_bucket(dir, entry->hash);

	while (*link != entry)
		link = &(*link)->next;
	*link = entry->next;
	dir->n_names--;
}

struct dentry *dentry_new(const char *name, struct inode *inode)
{
	size_t length = strlen(name);
	struct dentry *entry = calloc(1, offsetof(struct dentry, name) + length + 1);

	if (!entry)
		return NULL;
	entry->inode = inode;
	entry->length = (uint8_t)length;
	entry->hash = name_hash(name, length);
	memcpy(entry->name, name, length + 1);
	return entry;
}

/* Removes the slots without an entry from the order list. Cookies stay as they are. */
static void order_compact(struct dir *dir)
{
	uint32_t n_kept = 0;

	for (uint32_t i = 0; i < dir->n_order; i++)
		if (dir->order[i].entry)
			dir->order[n_kept++] = dir->order[i];
	dir->n_order = n_kept;
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
	uint32_t capacity = dir->cap_order < 4 ? 4 : dir->cap_order + dir->cap_order / 2;
	struct dir_slot *order = realloc(dir->order, capacity * sizeof(*order));

	if (!order)
		return -ENOMEM;
	dir->order = order;
	dir->cap_order = capacity;
	return 0;
}

int dir_add(struct dir *dir, struct dentry *entry)
{
	if (order_reserve(dir) || buckets_reserve(dir))
		return -ENOMEM;
	bucket_add(dir, entry);
	entry->cookie = dir->next_cookie++;
	dir->order[dir->n_order++] = (struct dir_slot){entry->cookie, entry};
	return 0;
}

/* The first position in the order list with at least this cookie. */
static uint32_t order_position(const struct dir *dir, uint64_t cookie)
{
	return (uint32_t)vector_search(i, dir->n_order, dir->order[i].cookie < cookie);
}

void dir_remove(struct dir *dir, struct dentry *entry)
{
	bucket_remove(dir, entry);
	dir->order[order_position(dir, entry->cookie)].entry = NULL;
	/* Drop empty slots at the end: every listing begins at the newest name, and would walk over
	 * the gaps. */
	while (dir->n_order && !dir->order[dir->n_order - 1].entry)
		dir->n_order--;
	if (dir->n_buckets > BUCKETS_MIN && dir->n_names < dir->n_buckets / BUCKETS_PER_NAME)
		buckets_resize(dir, dir->n_buckets / 2);
	/* Return memory when most slots are empty: a directory that held a million names and is
	 * empty again costs no more than a new directory. */
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

int dir_restore_add(struct dir *dir, struct dentry *entry)
{
	int rc = buckets_reserve(dir);

	if (rc)
		return rc;
	bucket_add(dir, entry);
	return 0;
}

void dir_restore_remove(struct dir *dir, struct dentry *entry)
{
	bucket_remove(dir, entry);
}

static int slot_compare(const void *a, const void *b)
{
	const struct dir_slot *slot_a = a, *slot_b = b;

	return (slot_a->cookie > slot_b->cookie) - (slot_a->cookie < slot_b->cookie);
}

int dir_restore_end(struct dir *dir)
{
	struct dir_slot *order = dir->n_names ? malloc(dir->n_names * sizeof(*order)) : NULL;
	uint32_t n = 0;

	if (dir->n_names && !order)
		return -ENOMEM;
	for (uint32_t i = 0; i < dir->n_buckets; i++)
		for (struct dentry *entry = dir->buckets[i]; entry; entry = entry->next)
			order[n++] = (struct dir_slot){entry->cookie, entry};
	if (n)
		qsort(order, n, sizeof(*order), slot_compare);
	free(dir->order);
	dir->order = order;
	dir->n_order = dir->cap_order = n;
	for (uint32_t i = 1; i < n; i++)
		if (order[i].cookie == order[i - 1].cookie)
			return -EUCLEAN;
	return 0;
}

struct dentry *dir_before(struct dir *dir, uint64_t cookie)
{
	for (uint32_t i = order_position(dir, cookie); i > 0; i--)
		if (dir->order[i - 1].entry)
			return dir->order[i - 1].entry;
	return NULL;
}
