/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Access of the other GPUs to a chunk. Granting the access costs 1.1 ms per GiB and peer; the
 * owner's access costs 0.07 (two H200). Most chunks never need the access of peers, so a background
 * thread grants the access, or a thread that copies between GPUs earlier than that. */
#ifndef BACKEND_CUDA_PEERS_H
#define BACKEND_CUDA_PEERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cuda_chunk;

enum peers_state {
	PEERS_NONE,	/* no peers, or the driver refused */
	PEERS_WAITING,	/* in the queue */
	PEERS_GRANTING, /* a thread is granting at this moment */
	PEERS_GRANTED
};

struct peers_entry {
	_Atomic(enum peers_state) state; /* written under the queue's lock */
	uint64_t guests; /* bits by slot: the granted peers, whose contexts the entry holds */
	struct cuda_chunk *previous, *next; /* in the queue */
};

struct peers {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* signals a change of a state, the queue or ending */
	struct cuda_chunk *queue;
	pthread_t thread;
	bool running, ending;
};

void peers_open(struct peers *peers);
void peers_close(struct peers *peers); /* no chunk is left */

/* The chunk is mapped and its owner has access. */
void peers_add(struct cuda_chunk *chunk);
/* Before the chunk is unmapped: waits until no thread is granting; no thread will grant later. */
void peers_remove(struct cuda_chunk *chunk);
/* After the chunk was unmapped: drops the chunk's hold on the peers' contexts. No manual says
 * whether a grant outlives the context of the peer device. */
void peers_drop(struct cuda_chunk *chunk);

/* After the context of a peer was replaced: grants the peer's access again. Copies go on meanwhile.
 */
void peers_renew(struct cuda_chunk *chunk);

static inline bool peers_granted(const struct peers_entry *entry)
{
	return atomic_load_explicit(&entry->state, memory_order_acquire) == PEERS_GRANTED;
}

/* Whether the peers have access, after granting the access if necessary. May change the context
 * that is current to this thread. */
bool peers_need(struct cuda_chunk *chunk);

#endif
