/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The mappings of files become those of other files, at their addresses: all of them, or none. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/stream/stream.h"
#include "client/core/error.h"
#include "client/core/process.h"
#include "client/lib/file.h"
#include "client/lib/park.h"
#include "common/cleanup.h"

/* Held during a switch, which locks several files: every other thread locks one at a time. */
static pthread_mutex_t switch_lock = PTHREAD_MUTEX_INITIALIZER;

struct pair {
	struct gpumem *file;
	struct gpumem *next; /* has the new memory, and afterwards the old */
	bool is_switched;
};

static int pair_check(const struct pair *pair)
{
	const struct gpumem *file = pair->file, *next = pair->next;
	struct ipc_memory of_malloc;

	if (file->parked || next->parked)
		return client_fail(EBUSY, "the file is parked: gpumem_unpark first");
	int rc = client_may_park(file);

	if (rc < 0)
		return rc;
	if (next->identity.device != file->identity.device ||
	    next->layout.kind != file->layout.kind ||
	    memcmp(next->layout.uuid, file->layout.uuid, sizeof(next->layout.uuid)) != 0)
		return client_fail(EXDEV, "the other version is not on the same GPU");
	if (next->layout.skip != file->layout.skip ||
	    client_layout_of_malloc(&next->layout, &of_malloc))
		return client_fail(ENOTSUP, "the other version's memory cannot be mapped there");
	if (next->layout.flags & GPUMEM_LAYOUT_PRIVATE)
		return client_fail(EACCES, "readers of the other version get a copy: its owner has "
					   "not set user.gpumem.share=trusted");
	if (!next->layout.size)
		return client_fail(EINVAL, "the other version's file is empty");
	return 0;
}

/* Takes longer than the rest of a switch, and changes no mapping. */
static int pair_prepare(const struct pair *pair)
{
	const struct client_gpu_ops *ops = client_file_ops(pair->file);

	return pair->file->device.vendor && ops->device_prepare
		   ? ops->device_prepare(&pair->file->device, &pair->next->layout)
		   : 0;
}

#define SWAP(a, b)                                                                                 \
	do {                                                                                       \
		__typeof__(a) swapped = a;                                                         \
		a = b;                                                                             \
		b = swapped;                                                                       \
	} while (0)

/* Addresses and callbacks stay with their file. Another file's producer has not ended. */
static void memory_swap(struct pair *pair)
{
	struct gpumem *a = pair->file, *b = pair->next;

	SWAP(a->fd, b->fd);
	SWAP(a->fd_kind, b->fd_kind);
	SWAP(a->identity, b->identity);
	SWAP(a->connection, b->connection);
	SWAP(a->layout, b->layout);
	SWAP(a->end.ended, b->end.ended);
	pair->is_switched = !pair->is_switched;
}

static int pair_switch(struct pair *pair)
{
	int rc = client_mappings_give(pair->file);

	memory_swap(pair);
	return rc < 0 ? rc : client_mappings_take(pair->file);
}

/* The memory as before; a file that does not get it back is left parked, without any. */
static void pair_restore(struct pair *pair)
{
	struct gpumem *file = pair->file;

	client_mappings_give(file);
	memory_swap(pair);
	if (client_mappings_take(file) == 0)
		return;
	client_mappings_give(file);
	client_lease_give(file);
}

static void pairs_lock(struct pair *pairs, size_t n, int (*change)(pthread_mutex_t *))
{
	for (size_t i = 0; i < n; i++) {
		change(&pairs[i].file->lock);
		change(&pairs[i].next->lock);
	}
}

/* The locks are held. */
static int pairs_switch(struct pair *pairs, size_t n)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = pair_check(&pairs[i]);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = pair_prepare(&pairs[i]);
	stream_fence();
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = pair_switch(&pairs[i]);
	if (rc == 0)
		return 0;
	AUTO_FREE char *text = strdup(client_error_text());

	for (size_t i = 0; i < n; i++) {
		const struct client_gpu_ops *ops = client_file_ops(pairs[i].file);

		if (pairs[i].is_switched)
			pair_restore(&pairs[i]);
		if (pairs[i].file->device.vendor && ops->device_cancel)
			ops->device_cancel(&pairs[i].file->device, &pairs[i].next->layout);
	}
	return client_fail(-rc, "%s", text ? text : "no memory");
}

static int names_are_apart(gpumem *const *files, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			if (files[i] == files[j])
				return client_fail(EINVAL, "a file is named twice");
	return 0;
}

static int files_switch(gpumem *const *files, const char *const *paths, size_t n)
{
	AUTO_FREE struct pair *pairs = calloc(n, sizeof(*pairs));
	size_t opened = 0;
	int rc = pairs ? names_are_apart(files, n) : client_fail(ENOMEM, "no memory");

	for (; rc == 0 && opened < n; opened += rc == 0) {
		pairs[opened].file = files[opened];
		rc = client_file_open(paths[opened], files[opened]->flags, &pairs[opened].next);
	}
	if (rc == 0) {
		scoped_lock(&switch_lock);
		pairs_lock(pairs, n, pthread_mutex_lock);
		rc = pairs_switch(pairs, n);
		pairs_lock(pairs, n, pthread_mutex_unlock);
	}
	for (size_t i = 0; i < opened; i++)
		client_file_free(pairs[i].next);
	return rc;
}

int gpumem_switch(gpumem *const *files, const char *const *paths, size_t n)
{
	CLIENT_CALL();
	return client_errno_return(n ? files_switch(files, paths, n) : 0);
}
