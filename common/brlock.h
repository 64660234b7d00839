/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A reader-writer lock with readers that share no cache line. Every read and write of a file takes
 * such a lock, so that threads on different files, or on different ranges of a file, do not slow
 * each other.
 *
 * A reader publishes the lock's address in a slot of a process-wide table, chosen by thread; a
 * writer takes the inner lock, revokes the bias and waits until no slot has the lock's address
 * (BRAVO, Dice and Kogan, USENIX ATC 2019). With the bias revoked, or all slots in use, a reader
 * takes the inner lock instead. A thread must not take a lock twice. A thread may hold several
 * locks shared, in an order that all threads keep, because a waiting writer can hold up new
 * readers. */
#ifndef COMMON_BRLOCK_H
#define COMMON_BRLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct brlock {
	pthread_rwlock_t inner;
	atomic_bool biased;
	uint32_t unbias_until; /* ticks of brlock.c, which wrap around; under inner, exclusive */
};

/* A reader hands this back to unlock: the slot used, or NULL for the inner lock. */
struct brlock_slot;
typedef struct brlock_slot *brlock_token;

void brlock_init(struct brlock *lock);
void brlock_destroy(struct brlock *lock);

brlock_token brlock_read_lock(struct brlock *lock);
/* Does not wait: false while a writer holds or waits for the lock. */
bool brlock_read_trylock(struct brlock *lock, brlock_token *token);
void brlock_read_unlock(struct brlock *lock, brlock_token token);

void brlock_write_lock(struct brlock *lock);
/* Does not wait: false while a reader or a writer holds the lock. */
bool brlock_write_trylock(struct brlock *lock);
void brlock_write_unlock(struct brlock *lock);

#endif
