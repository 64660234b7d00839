/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/stage.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/staging.h"
#include "client/preload/core/own.h"

/* Half of the staging memory and the program's own buffer fit into a processor's second cache. */
#define STAGE_BYTES (2UL << 20)

/* The kernel allows one copy into a file at a time, but any number of writes. When several threads
 * move large pieces, the kernel serves so many calls. */
#define CROWD_CALLS 64

static pthread_mutex_t staging_lock = PTHREAD_MUTEX_INITIALIZER;
static struct client_staging staging_memory = CLIENT_STAGING_NONE;
static uint64_t staging_device; /* set once, before is_staging_open */
static atomic_bool is_staging_open;
static atomic_bool was_open_tried; /* stage_open was called */
static atomic_uint n_kernel_calls; /* number of calls left to the kernel */

bool stage_was_tried(void)
{
	return atomic_load(&was_open_tried);
}

bool stage_is_for(const struct slot *slot)
{
	return atomic_load_explicit(&is_staging_open, memory_order_acquire) &&
	       slot->identity.device == staging_device;
}

void stage_open(const struct slot *slot, int fd)
{
	if (atomic_exchange(&was_open_tried, true) ||
	    client_staging_open(fd, STAGE_BYTES, &staging_memory) < 0)
		return;
	if (client_staging_touch(&staging_memory, 0, STAGE_BYTES) < 0) {
		client_staging_close(&staging_memory);
		return;
	}
	staging_memory.fd = own_adopt(staging_memory.fd);
	staging_device = slot->identity.device;
	atomic_store(&is_staging_open, staging_memory.fd >= 0);
}

/* Copies between the parts of a call, from the byte at of the call on, and the staging memory. */
static void stage_copy_parts(const struct io_call *call, size_t at, size_t bytes)
{
	char *memory = staging_memory.base;

	for (int i = 0; i < call->n_parts && bytes; i++) {
		size_t length = call->parts[i].iov_len;
		if (at >= length) {
			at -= length;
			continue;
		}
		char *base = (char *)call->parts[i].iov_base + at;
		size_t n = length - at < bytes ? length - at : bytes;
		if (call->direction == IO_WRITE)
			memcpy(memory, base, n);
		else
			memcpy(base, memory, n);
		memory += n;
		bytes -= n;
		at = 0;
	}
}

/* After a short copy the kernel repeats the whole call, and gives the program its answer. */
static bool stage_move_parts(const struct io_call *call, off_t offset, size_t bytes)
{
	for (size_t bytes_moved = 0, step; bytes_moved < bytes; bytes_moved += step) {
		uint64_t at = (uint64_t)offset + bytes_moved;
		ssize_t n;

		step = bytes - bytes_moved < STAGE_BYTES ? bytes - bytes_moved : STAGE_BYTES;
		if (call->direction == IO_WRITE) {
			stage_copy_parts(call, bytes_moved, step);
			n = client_staging_put(&staging_memory, 0, call->fd, at, step);
		} else {
			n = client_staging_get(&staging_memory, 0, call->fd, at, step);
			if (n == (ssize_t)step)
				stage_copy_parts(call, bytes_moved, step);
		}
		if (n != (ssize_t)step)
			return false;
	}
	return true;
}

static bool stage_is_crowded(void)
{
	unsigned n_left = atomic_load(&n_kernel_calls);

	return n_left && atomic_compare_exchange_strong(&n_kernel_calls, &n_left, n_left - 1);
}

bool stage_move(const struct io_call *call, off_t offset, size_t bytes)
{
	if (stage_is_crowded())
		return false;
	if (pthread_mutex_trylock(&staging_lock) != 0) {
		atomic_store(&n_kernel_calls, CROWD_CALLS);
		return false;
	}
	int error = errno;
	bool moved = stage_move_parts(call, offset, bytes);
	errno = error;
	pthread_mutex_unlock(&staging_lock);
	return moved;
}

/* The staging memory belongs to the parent. */
void stage_forked(void)
{
	pthread_mutex_init(&staging_lock, NULL);
	if (atomic_exchange(&is_staging_open, false))
		client_staging_close(&staging_memory);
	atomic_store(&was_open_tried, false);
}
