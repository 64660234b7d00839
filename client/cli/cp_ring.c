/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp into the mount: every thread reads parts of the source into a ring of staging memory,
 * and one at a time has the GPU copy all that was read in order. The kernel lets one copy at a time
 * into a file: threads that each wait for their own turn at that, and are woken for it, reached
 * half of the link; one that comes back at once, with more bytes the longer the last request took,
 * leaves the others to read. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "client/cli/buffer.h"
#include "client/cli/cp.h"
#include "common/defer.h"

#define SLOTS 64 /* 128 MiB */
/* Slots of one request: the daemon has 64 MiB of a file in one piece, and a part of it must be on
 * its way while the next is read. */
#define BATCH 16
/* A thread that waits looks up as often, in ns: a signal tells nobody. */
#define LOOK_NS 50000000

struct cp_ring {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct cp_staging staging;
	/* Memory is touched by all who come, before its first use. */
	atomic_uint touching, touched; /* slots */
	/* lock: */
	const struct cp_file *file; /* whose it is; NULL: nobody's */
	uint64_t sent;		    /* the file's parts from the first on that are there */
	bool sending;		    /* it is somebody's turn */
	bool ready[SLOTS];	    /* by part modulo SLOTS: read, and not there yet */
};

static struct cp_ring *ring_new(void)
{
	struct cp_ring *ring = calloc(1, sizeof(*ring));

	if (!ring)
		return NULL;
	pthread_mutex_init(&ring->lock, NULL);
	pthread_cond_init(&ring->changed, NULL);
	ring->staging.memory = CLIENT_STAGING_NONE;
	return ring;
}

/* The ring is nobody's. */
static bool ring_is_for(struct cp_ring *ring, int fd)
{
	if (!cp_staging_for(&ring->staging, fd, SLOTS * CP_PART_STAGED))
		return false;
	if (ring->staging.fresh) {
		atomic_store(&ring->touching, 0);
		atomic_store(&ring->touched, 0);
	}
	ring->staging.fresh = false;
	return true;
}

static struct cp_ring *ring_of(struct cp *cp)
{
	LOCKED(&cp->lock);
	if (!cp->ring)
		cp->ring = ring_new();
	return cp->ring;
}

bool cp_ring_take(struct cp *cp, const struct cp_file *file)
{
	struct cp_ring *ring = ring_of(cp);

	if (!ring)
		return false;
	LOCKED(&ring->lock);
	if (ring->file || !ring_is_for(ring, file->out))
		return false;
	ring->file = file;
	return true;
}

void cp_ring_begin(struct cp *cp, uint64_t first)
{
	cp->ring->sent = first;
}

void cp_ring_release(struct cp *cp, const struct cp_file *file)
{
	struct cp_ring *ring = cp->ring;

	LOCKED(&ring->lock);
	if (ring->file != file)
		return;
	ring->file = NULL;
	for (unsigned i = 0; i < SLOTS; i++)
		ring->ready[i] = false;
}

void cp_ring_free(struct cp *cp)
{
	struct cp_ring *ring = cp->ring;

	if (!ring)
		return;
	client_staging_close(&ring->staging.memory);
	pthread_cond_destroy(&ring->changed);
	pthread_mutex_destroy(&ring->lock);
	free(ring);
}

static void touch(struct cp_ring *ring)
{
	unsigned slot;

	while ((slot = atomic_fetch_add(&ring->touching, 1)) < SLOTS) {
		client_staging_touch(&ring->staging.memory, slot * CP_PART_STAGED, CP_PART_STAGED);
		atomic_fetch_add(&ring->touched, 1);
	}
	atomic_store(&ring->touching, SLOTS);
	while (atomic_load(&ring->touched) < SLOTS)
		sched_yield();
}

/* False: the file is not copied on. */
static bool wait_for_slot(struct cp *cp, struct cp_ring *ring, struct cp_file *file, uint64_t part)
{
	struct timespec until;

	LOCKED(&ring->lock);
	while (part >= ring->sent + SLOTS) {
		if (atomic_load(&file->error) || cp_stopped(cp))
			return false;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOOK_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&ring->changed, &ring->lock, &until);
	}
	return !atomic_load(&file->error);
}

/* How many parts are ready, in order and in one piece. Under the lock. */
static unsigned ready_parts(const struct cp_ring *ring)
{
	unsigned first = (unsigned)(ring->sent % SLOTS), n = 0;

	while (first % BATCH + n < BATCH && ring->ready[first + n])
		n++;
	return n;
}

/* What keeps some of it from being copied is said by a write. */
static int send(const struct cp_ring *ring, const struct cp_file *file, uint64_t first, unsigned n)
{
	uint64_t at = first % SLOTS * CP_PART_STAGED, offset = first * CP_PART_STAGED, bytes = 0;

	for (unsigned i = 0; i < n; i++)
		bytes += cp_part_bytes(file, first + i);
	ssize_t sent = client_staging_put(&ring->staging.memory, at, file->out, offset, bytes);

	if (sent < 0)
		return (int)-sent;
	uint64_t done = (uint64_t)sent;
	return done == bytes ? 0
			     : -buffer_write(file->out, ring->staging.memory.base + at + done,
					     bytes - done, offset + done);
}

/* Under the lock, but for the sending itself. */
static void send_ready(struct cp *cp, struct cp_ring *ring, struct cp_file *file)
{
	unsigned n;

	ring->sending = true;
	while (!atomic_load(&file->error) && (n = ready_parts(ring)) > 0) {
		uint64_t first = ring->sent;

		pthread_mutex_unlock(&ring->lock);
		int error = send(ring, file, first, n);
		if (error)
			cp_file_fail(file, file->to, error);
		for (unsigned i = 0; !error && i < n; i++)
			cp_mark(cp, file, first + i, NULL);
		pthread_mutex_lock(&ring->lock);
		for (unsigned i = 0; i < n; i++)
			ring->ready[(first + i) % SLOTS] = false;
		ring->sent += n;
		pthread_cond_broadcast(&ring->changed);
	}
	ring->sending = false;
}

void cp_ring_part(struct cp *cp, struct cp_file *file, uint64_t part)
{
	struct cp_ring *ring = cp->ring;
	uint64_t slot = part % SLOTS;

	touch(ring);
	if (!wait_for_slot(cp, ring, file, part))
		return;
	int error = cp_read(file, ring->staging.memory.base + slot * CP_PART_STAGED,
			    cp_part_bytes(file, part), part * CP_PART_STAGED);

	if (error)
		cp_file_fail(file, file->from, error);
	LOCKED(&ring->lock);
	ring->ready[slot] = !error;
	if (!ring->sending)
		send_ready(cp, ring, file);
}
