/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/copy/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/gpu/gpu.h"
#include "client/lib/file.h"
#include "client/preload/copy/pages.h"
#include "client/preload/core/access.h"
#include "client/preload/core/file_stats.h"
#include "client/preload/core/fill.h"
#include "client/preload/core/own.h"
#include "common/cleanup.h"

/* Each source has a descriptor open. */
#define SOURCES_MAX 64

struct source {
	const char *start;
	size_t bytes;
	uint64_t offset;
	bool shared;
	struct slot_identity identity;
	int path; /* O_PATH: closing such a descriptor leaves the process's locks alone */
	unsigned references;  /* under table_lock: the table's, and one for each copy */
	pthread_mutex_t lock; /* of the members below */
	gpumem *file;	      /* set once; NULL: no lease */
	bool refused;
	enum stats_left reason;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct source *source_table[SOURCES_MAX]; /* under table_lock */
static atomic_uint n_sources;			 /* changed under table_lock */
static bool copies_enabled = true;

void source_start(void)
{
	const char *text = secure_getenv("GPUMEM_PRELOAD_COPY");

	copies_enabled = !text || strcmp(text, "0") != 0;
}

bool source_exists(void)
{
	return atomic_load_explicit(&n_sources, memory_order_relaxed) && !own_inside &&
	       own_process();
}

static void source_free(struct source *source)
{
	gpumem_close(source->file);
	close(source->path);
	pthread_mutex_destroy(&source->lock);
	free(source);
}

static void source_put(struct source *source)
{
	pthread_mutex_lock(&table_lock);
	bool last = --source->references == 0;
	pthread_mutex_unlock(&table_lock);
	if (last)
		source_free(source);
}

static bool source_touches(const struct source *source, const char *start, size_t bytes)
{
	return source->start < start + bytes && start < source->start + source->bytes;
}

static struct source *source_new(const struct mapping_request *request,
				 const struct slot_identity *identity, const void *address)
{
	struct source *source = calloc(1, sizeof(*source));
	char path[BENEATH_THROUGH_MAX];

	if (!source)
		return NULL;
	*source =
	    (struct source){.start = address,
			    .bytes = request->bytes,
			    .offset = (uint64_t)request->offset,
			    .shared = request->flags & MAP_SHARED,
			    .identity = *identity,
			    .path = open(beneath_through(request->fd, path), O_PATH | O_CLOEXEC),
			    .references = 1};
	if (source->path < 0) {
		free(source);
		return NULL;
	}
	pthread_mutex_init(&source->lock, NULL);
	return source;
}

static bool table_add(struct source *source)
{
	scoped_lock(&table_lock);
	unsigned n = atomic_load(&n_sources);
	if (n == SOURCES_MAX)
		return false;
	source_table[n] = source;
	atomic_store(&n_sources, n + 1);
	return true;
}

void source_add(const struct mapping_request *request, const struct slot_identity *identity,
		const void *address, bool only_loads)
{
	if (!copies_enabled || !(request->flags & MAP_PRIVATE || only_loads) ||
	    request->bytes < SOURCE_MIN)
		return;
	struct source *source = source_new(request, identity, address);
	if (source && !table_add(source))
		source_free(source);
}

/* Under table_lock. The caller takes over the table's reference. */
static struct source *source_remove(unsigned i)
{
	struct source *source = source_table[i];
	unsigned n = atomic_load(&n_sources) - 1;

	source_table[i] = source_table[n];
	atomic_store(&n_sources, n);
	return source;
}

/* Which sources are to be removed: those of a file, or those that a range touches. */
struct choice {
	const struct slot_identity *identity; /* NULL: by the range */
	const char *start;
	size_t bytes;
	bool shared; /* and no private ones */
};

static bool choice_has(const struct choice *choice, const struct source *source)
{
	if (choice->identity)
		return slot_same(&source->identity, choice->identity);
	return source_touches(source, choice->start, choice->bytes) &&
	       (source->shared || !choice->shared);
}

/* The number of sources that were removed. */
static unsigned sources_remove(const struct choice *choice, struct source **removed)
{
	unsigned n = 0;

	scoped_lock(&table_lock);
	for (unsigned i = atomic_load(&n_sources); i-- > 0;)
		if (choice_has(choice, source_table[i]))
			removed[n++] = source_remove(i);
	return n;
}

static void range_forget(const struct choice *choice)
{
	struct source *removed[SOURCES_MAX];

	if (!source_exists() || choice->start == MAP_FAILED)
		return;
	int error = errno;
	INSIDE();
	for (unsigned n = sources_remove(choice, removed); n-- > 0;)
		source_put(removed[n]);
	errno = error;
}

void source_forget(const void *address, size_t bytes)
{
	range_forget(&(struct choice){.start = address, .bytes = bytes});
}

void source_stores(const void *address, size_t bytes)
{
	range_forget(&(struct choice){.start = address, .bytes = bytes, .shared = true});
}

bool source_yield(const struct slot_identity *identity)
{
	struct source *removed[SOURCES_MAX];
	bool had = false;

	for (unsigned n = sources_remove(&(struct choice){.identity = identity}, removed);
	     n-- > 0;) {
		pthread_mutex_lock(&removed[n]->lock);
		had = had || removed[n]->file;
		pthread_mutex_unlock(&removed[n]->lock);
		source_put(removed[n]);
	}
	return had;
}

/* --- copies */

/* Takes a reference to the source that has all of the bytes, or gives NULL. */
static struct source *source_take(const char *from, size_t bytes)
{
	scoped_lock(&table_lock);
	for (unsigned i = 0; i < atomic_load(&n_sources); i++) {
		struct source *source = source_table[i];
		if (from < source->start || bytes > source->bytes ||
		    (size_t)(from - source->start) > source->bytes - bytes)
			continue;
		source->references++;
		return source;
	}
	return NULL;
}

/* A lease fills the holes of a file with memory. */
static bool file_has_holes(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 || (uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size;
}

static gpumem *lease_new(const struct source *source, enum stats_left *reason)
{
	bool writable;

	*reason = LEFT_FAILED;
	if (access_kind(source->path, reason) != ACCESS_GPU)
		return NULL;
	*reason = LEFT_SPARSE;
	return file_has_holes(source->path)
		   ? NULL
		   : access_lease(source->path, ACCESS_LOADS, &writable, reason);
}

/* Takes the lease if there is none. NULL, with the reason. */
static gpumem *source_lease(struct source *source, size_t bytes, enum stats_left *reason)
{
	scoped_lock(&source->lock);
	if (!source->file && !source->refused && bytes >= SOURCE_USE) {
		/* The pages are not needed, and an open(2) of the file, as for a lease, waits for
		 * those that are being filled: 1.6 s for 2.7 GiB. */
		fill_stop(source->start, source->bytes);
		source->file = lease_new(source, &source->reason);
		source->refused = !source->file;
	}
	*reason = source->refused ? source->reason : LEFT_WARMING;
	return source->file;
}

/* A call of the program. */
struct copy {
	uint64_t to_device;
	void *to_memory; /* NULL: the copy is to a device */
	const char *from;
	size_t bytes;
	void *stream; /* for a copy to a device */
};

static bool copy_make(const struct copy *copy, const struct client_gpu_ops *ops, uint64_t from)
{
	if (copy->to_memory)
		return ops->host_copy && ops->host_copy(copy->to_memory, from, copy->bytes) == 0;
	return ops->device_copy &&
	       ops->device_copy(copy->to_device, from, copy->bytes, copy->stream) == 0;
}

/* Without a current context there is no device address: the library does not initialise CUDA. */
static bool source_serve(struct source *source, const struct copy *copy, enum stats_left *reason)
{
	uint64_t offset = source->offset + (uint64_t)(copy->from - source->start);
	size_t bytes = copy->bytes, size;
	unsigned long long base;

	gpumem *file = source_lease(source, bytes, reason);
	if (!file)
		return false;
	*reason = LEFT_FAILED;
	if (gpumem_map_device(file, &base, &size) < 0)
		return false;
	*reason = LEFT_END_OF_FILE;
	if (offset > size || bytes > size - offset)
		return false;
	*reason = LEFT_CHANGED;
	if (!pages_are_of_file(copy->from, bytes))
		return false;
	*reason = LEFT_FAILED;
	return copy_make(copy, file->device.vendor, base + offset);
}

/* The calling thread is in the library. */
static bool copy_serve(const struct copy *copy)
{
	struct source *source = source_take(copy->from, copy->bytes);
	enum stats_left reason;

	/* A copy to memory may be of a program that uses no GPU, and needs no lease. */
	bool eligible = source && (!copy->to_memory || client_gpu_has_context());
	bool copied = eligible && source_serve(source, copy, &reason);
	if (copied) {
		stats_serve(SERVED_COPY, copy->bytes);
		file_stats_add(source->path, MANNER_COPIED, copy->bytes);
	} else if (eligible) {
		stats_leave(reason);
	}
	if (source)
		source_put(source);
	return copied;
}

static bool source_copy_any(const struct copy *copy)
{
	if (copy->bytes == 0 || !source_exists())
		return false;
	int error = errno;
	INSIDE();
	bool copied = copy_serve(copy);
	errno = error;
	return copied;
}

bool source_copy(uint64_t to, const void *from, size_t bytes, void *stream)
{
	return source_copy_any(
	    &(struct copy){.to_device = to, .from = from, .bytes = bytes, .stream = stream});
}

bool source_copy_to_memory(void *to, const void *from, size_t bytes)
{
	return source_copy_any(&(struct copy){.to_memory = to, .from = from, .bytes = bytes});
}

/* --- fork */

void source_before_fork(void)
{
	pthread_mutex_lock(&table_lock);
}

void source_after_fork(void)
{
	pthread_mutex_unlock(&table_lock);
}

/* The leases belong to the parent, and a child cannot use the parent's CUDA. A source that another
 * thread of the parent was using is never freed: its lock may be held. */
void source_forked(void)
{
	pthread_mutex_init(&table_lock, NULL);
	while (atomic_load(&n_sources)) {
		struct source *source = source_remove(0);
		if (source->references == 1)
			source_free(source);
	}
}
