/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The null daemon's store: names, and bytes in memory. */
#ifndef TESTS_BENCH_NULL_STORE_H
#define TESTS_BENCH_NULL_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/hash.h"

/* Address space of a file: only touched pages cost memory. So no read or write waits for another
 * while a file grows. */
#define NULL_FILE_MAX (64ULL << 30)

/* A file or a directory. */
struct null_file {
	UT_hash_handle hh; /* by key, in the order of creation; under null_store.lock */
	char *key;	   /* the parent's node id, then the name */
	const char *name;  /* in the key */
	uint64_t parent;
	uint64_t cookie;  /* for readdir */
	uint64_t lookups; /* lookup count of the kernel; under the lock */
	bool unlinked;
	mode_t mode;
	_Atomic(char *) memory; /* NULL until first needed */
	_Atomic uint64_t size;
};

/* parent is the node id of the directory. */
struct null_file *null_store_find(uint64_t parent,
				  const char *name); /* counts a lookup; NULL: not found */
/* A new file with a lookup counted: 0 or -errno. */
int null_store_create(uint64_t parent, const char *name, mode_t mode, struct null_file **file);
int null_store_unlink(uint64_t parent, const char *name);
void null_store_forget(struct null_file *file, uint64_t lookups);
/* Lists all names of a directory after a cookie (0: all), under the store's lock. Stops when take
 * returns false. */
void null_store_list(uint64_t parent, uint64_t cookie,
		     bool (*take)(void *context, const struct null_file *file), void *context);

/* The file's memory, reserved on first use; NULL if the reservation fails. */
char *null_file_memory(struct null_file *file);
void null_file_grow(struct null_file *file, uint64_t size);
void null_file_resize(struct null_file *file, uint64_t size);

#endif
