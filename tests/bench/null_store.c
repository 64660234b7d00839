/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/null_store.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/cleanup.h"

static struct {
	pthread_mutex_t lock;
	struct null_file *by_name;
	uint64_t cookies;
	/* Where the last listing stopped: the next listing continues there, without a search. */
	struct null_file *stopped;
} store = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void file_free(struct null_file *file)
{
	char *memory = atomic_load(&file->memory);

	if (memory)
		munmap(memory, NULL_FILE_MAX);
	free(file->key);
	free(file);
}

struct key {
	char text[sizeof(uint64_t) + NAME_MAX + 1];
	size_t bytes; /* without the terminating zero of the name */
};

static struct key key_of(uint64_t parent, const char *name)
{
	struct key key = {.bytes = sizeof(parent) + strnlen(name, NAME_MAX)};

	memcpy(key.text, &parent, sizeof(parent));
	memcpy(key.text + sizeof(parent), name, key.bytes - sizeof(parent));
	return key;
}

struct null_file *null_store_find(uint64_t parent, const char *name)
{
	struct key key = key_of(parent, name);
	struct null_file *file;

	scoped_lock(&store.lock);
	HASH_FIND(hh, store.by_name, key.text, key.bytes, file);
	if (file)
		file->lookups++;
	return file;
}

int null_store_create(uint64_t parent, const char *name, mode_t mode, struct null_file **created)
{
	struct key key = key_of(parent, name);
	struct null_file *file, *old;

	scoped_lock(&store.lock);
	HASH_FIND(hh, store.by_name, key.text, key.bytes, old);
	if (old)
		return -EEXIST;
	file = calloc(1, sizeof(*file));
	if (!file || !(file->key = malloc(key.bytes + 1))) {
		free(file);
		return -ENOMEM;
	}
	memcpy(file->key, key.text, key.bytes);
	file->key[key.bytes] = '\0';
	file->name = file->key + sizeof(parent);
	file->parent = parent;
	file->mode = mode;
	file->cookie = ++store.cookies;
	file->lookups = 1;
	HASH_ADD_KEYPTR(hh, store.by_name, file->key, key.bytes, file);
	*created = file;
	return 0;
}

int null_store_unlink(uint64_t parent, const char *name)
{
	struct key key = key_of(parent, name);
	struct null_file *file;

	scoped_lock(&store.lock);
	HASH_FIND(hh, store.by_name, key.text, key.bytes, file);
	if (!file)
		return -ENOENT;
	HASH_DEL(store.by_name, file);
	store.stopped = NULL;
	file->unlinked = true;
	if (!file->lookups)
		file_free(file);
	return 0;
}

void null_store_forget(struct null_file *file, uint64_t lookups)
{
	scoped_lock(&store.lock);
	file->lookups -= lookups;
	if (!file->lookups && file->unlinked)
		file_free(file);
}

static bool passes(const struct null_file *file, uint64_t parent, uint64_t cookie,
		   bool (*take)(void *context, const struct null_file *file), void *context)
{
	return file->cookie <= cookie || file->parent != parent || take(context, file);
}

void null_store_list(uint64_t parent, uint64_t cookie,
		     bool (*take)(void *context, const struct null_file *file), void *context)
{
	struct null_file *file;

	scoped_lock(&store.lock);
	file = store.stopped && store.stopped->cookie <= cookie ? store.stopped : store.by_name;
	for (; file && passes(file, parent, cookie, take, context); file = file->hh.next)
		store.stopped = file;
}

char *null_file_memory(struct null_file *file)
{
	char *memory = atomic_load_explicit(&file->memory, memory_order_acquire), *none = NULL;

	if (memory)
		return memory;
	memory = mmap(NULL, NULL_FILE_MAX, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	if (atomic_compare_exchange_strong(&file->memory, &none, memory))
		return memory;
	munmap(memory, NULL_FILE_MAX);
	return none;
}

void null_file_grow(struct null_file *file, uint64_t size)
{
	uint64_t now = atomic_load_explicit(&file->size, memory_order_relaxed);

	while (now < size && !atomic_compare_exchange_weak(&file->size, &now, size))
		;
}

void null_file_resize(struct null_file *file, uint64_t size)
{
	char *memory = atomic_load(&file->memory);
	uint64_t now = atomic_exchange(&file->size, size), page = 4096;
	uint64_t from = (size + page - 1) / page * page;

	if (!memory || now <= size)
		return;
	memset(memory + size, 0, from - size);
	if (now > from)
		madvise(memory + from, now - from, MADV_DONTNEED);
}
