/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A reader-writer lock whose readers share no cache line: what every read and write of a file
 * takes, so that threads on different files, or on different ranges of one, do not meet.
 *
 * A reader publishes the guard's address in a slot of a process-wide table, chosen by thread;
 * a writer takes the inner lock, revokes the bias and waits until no slot names the guard
 * (BRAVO, Dice and Kogan, USENIX ATC 2019). Readers that find the bias revoked or their slot
 * taken use the inner lock. Neither side may be taken recursively by one thread; a thread may hold
 * several different guards shared, taken in an order that all threads keep (a waiting writer can
 * hold up new readers). */
#ifndef COMMON_BRLOCK_H
#define COMMON_BRLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct brlock {
	pthread_rwlock_t inner;
	atomic_bool biased;
	uint32_t unbias_until; /* ticks of guard.c, which go round; under inner, exclusive */
};

/* What a shared holder must hand back: the slot used, or NULL for the inner lock. */
struct brlock_slot;
typedef struct brlock_slot *brlock_token;

void brlock_init(struct brlock *guard);
void brlock_destroy(struct brlock *guard);

brlock_token brlock_read_lock(struct brlock *guard);
/* Does not wait: false where a writer has the guard, or is about to. */
bool brlock_read_trylock(struct brlock *guard, brlock_token *token);
void brlock_read_unlock(struct brlock *guard, brlock_token token);

void brlock_write_lock(struct brlock *guard);
/* Does not wait: false where a reader or a writer has the guard. */
bool brlock_write_trylock(struct brlock *guard);
void brlock_write_unlock(struct brlock *guard);

#endif
