/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Access of the other GPUs to a chunk. It costs 1.1 ms per GiB and peer where the owner's costs
 * 0.07 (two H200), and most chunks never need it: so a thread in the background grants it, or
 * whoever copies between GPUs before that thread came by. */
#ifndef BACKEND_CUDA_PEERS_H
#define BACKEND_CUDA_PEERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cuda_chunk;

enum peers_state {
	PEERS_NONE,	/* there are none, or they were refused */
	PEERS_WAITING,	/* in the queue */
	PEERS_GRANTING, /* by some thread, at this moment */
	PEERS_GRANTED
};

struct peers_entry {
	_Atomic(enum peers_state) state;    /* written under the queue's lock */
	uint64_t guests;		    /* bits by slot: granted to these, which it holds */
	struct cuda_chunk *previous, *next; /* in the queue */
};

struct peers {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a state or the queue or ending */
	struct cuda_chunk *queue;
	pthread_t thread;
	bool running, ending;
};

void peers_open(struct peers *peers);
void peers_close(struct peers *peers); /* no chunk is left */

/* The chunk is mapped and its owner has access. */
void peers_add(struct cuda_chunk *chunk);
/* Before the chunk is unmapped: nobody is granting or will. */
void peers_remove(struct cuda_chunk *chunk);
/* After it: the peers' contexts may go as far as it is concerned. Whether a grant outlives the
 * context of the device that it was made for, no manual says. */
void peers_drop(struct cuda_chunk *chunk);

/* The context of a peer was replaced: its access is granted anew. Copies go on meanwhile. */
void peers_renew(struct cuda_chunk *chunk);

static inline bool peers_granted(const struct peers_entry *entry)
{
	return atomic_load_explicit(&entry->state, memory_order_acquire) == PEERS_GRANTED;
}

/* Whether the peers have access: grants it if that has not been done. May change the context that
 * is current to this thread. */
bool peers_need(struct cuda_chunk *chunk);

#endif
