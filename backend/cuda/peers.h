/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Access of other GPUs to a chunk. Granting takes 1.1 ms per GiB and peer, but 0.07 for the owner
 * (two H200), and most chunks never need peers: so a background thread grants the access, or
 * earlier a thread that copies between GPUs. */
#ifndef BACKEND_CUDA_PEERS_H
#define BACKEND_CUDA_PEERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/background.h"

struct cuda_chunk;

enum peers_state {
	PEERS_NONE,	/* no peers, or the driver refused */
	PEERS_WAITING,	/* in the queue */
	PEERS_GRANTING, /* by some thread, at this moment */
	PEERS_GRANTED
};

struct peers_entry {
	_Atomic(enum peers_state) state; /* written under the queue's lock */
	uint64_t guests; /* bits by slot: the peers with access, each of which is held */
	struct cuda_chunk *previous, *next; /* in the queue */
};

struct peers {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* of the state of a chunk */
	struct cuda_chunk *queue;
	struct background background;
};

void peers_open(struct peers *peers);
void peers_close(struct peers *peers); /* no chunk is left */

/* The owner of the chunk has access. Does nothing for a chunk without an address, or of
 * cudaMalloc. */
void peers_add(struct cuda_chunk *chunk);
/* To be called before unmapping: waits until no thread is granting, and none will. */
void peers_remove(struct cuda_chunk *chunk);
/* To be called after unmapping: the chunk no longer holds the peers' contexts. No manual says
 * whether an access outlives the context of its device. */
void peers_drop(struct cuda_chunk *chunk);

/* A peer's context was replaced: grants it access again. Copies go on meanwhile. */
void peers_renew(struct cuda_chunk *chunk);

static inline bool peers_granted(const struct peers_entry *entry)
{
	return atomic_load_explicit(&entry->state, memory_order_acquire) == PEERS_GRANTED;
}

/* Whether the peers have access; grants it if necessary. May change the context that is current to
 * this thread. */
bool peers_need(struct cuda_chunk *chunk);

#endif
