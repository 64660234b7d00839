/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/brlock.h"
#include "common/clock.h"

#include <sched.h>
#include <stddef.h>
#include <time.h>

/* A thread owns a row of the table, so that no other thread writes the cache lines of its slots
 * (threads beyond the number of rows share rows). 128 bytes: lines are prefetched in pairs. */
#define ROWS	  512
#define ROW_SLOTS 8
#define ROW_ALIGN 128

/* Readers do without the bias for this many times as long as the last revocation took, so that
 * revoking costs writers a tenth of their time at most. The time counted is at most the time of a
 * scan of the whole table: the rest was waiting for readers, as with any lock. */
#define UNBIAS_FACTOR 9
#define UNBIAS_MAX_NS 1000000

/* A tick is 2^16 ns of CLOCK_MONOTONIC, so that half of the range of 32 bits is 39 hours. A lock
 * left alone for longer may stay without bias for as long again. */
#define TICK_SHIFT 16

#define SPINS	    200
#define SPIN_YIELDS 20
#define WAIT_NS	    50000

struct brlock_slot {
	_Atomic(struct brlock *) held;
};

static struct brlock_row {
	_Alignas(ROW_ALIGN) struct brlock_slot slots[ROW_SLOTS];
} brlock_table[ROWS];

/* Threads that ever took a lock. A writer scans only the rows of such threads. */
static atomic_ulong brlock_threads;

static _Thread_local struct brlock_row *own_row;

static uint32_t ticks_of(int64_t ns)
{
	return (uint32_t)((uint64_t)ns >> TICK_SHIFT);
}

/* The inner lock is of the default kind: readers pass a waiting writer. The writer does not starve:
 * soon a reader restores the bias, and later readers do not touch the inner lock. The kind for
 * writers first would starve the readers. */
void brlock_init(struct brlock *lock)
{
	pthread_rwlock_init(&lock->inner, NULL);
	atomic_init(&lock->biased, true);
	lock->unbias_until = 0; /* read after the bias was revoked, which sets the field */
}

void brlock_destroy(struct brlock *lock)
{
	pthread_rwlock_destroy(&lock->inner);
}

static struct brlock_row *brlock_own_row(void)
{
	if (!own_row)
		own_row = &brlock_table[atomic_fetch_add(&brlock_threads, 1) % ROWS];
	return own_row;
}

/* Stores the lock's address in a free slot of the thread's row. NULL: all slots are in use. */
static struct brlock_slot *brlock_publish(struct brlock *lock)
{
	struct brlock_row *row = brlock_own_row();
	for (int i = 0; i < ROW_SLOTS; i++) {
		struct brlock_slot *slot = &row->slots[i];
		struct brlock *expected = NULL;
		if (!atomic_load_explicit(&slot->held, memory_order_relaxed) &&
		    atomic_compare_exchange_strong(&slot->held, &expected, lock))
			return slot;
	}
	return NULL;
}

static void brlock_withdraw(struct brlock_slot *slot)
{
	atomic_store_explicit(&slot->held, NULL, memory_order_release);
}

/* NULL: use the inner lock. */
static struct brlock_slot *brlock_read_lock_biased(struct brlock *lock)
{
	if (!atomic_load_explicit(&lock->biased, memory_order_relaxed))
		return NULL;
	struct brlock_slot *slot = brlock_publish(lock);
	/* The reader writes its slot and reads the bias; the writer writes the bias and reads the
	 * slots. With all four sequentially consistent, at least one of the two sees the other. */
	if (slot && atomic_load(&lock->biased))
		return slot;
	if (slot)
		brlock_withdraw(slot);
	return NULL;
}

/* Under the inner lock, shared: no writer can be revoking the bias. */
static void brlock_bias(struct brlock *lock)
{
	if (!atomic_load_explicit(&lock->biased, memory_order_relaxed) &&
	    (int32_t)(ticks_of(clock_ns()) - lock->unbias_until) >= 0)
		atomic_store(&lock->biased, true);
}

brlock_token brlock_read_lock(struct brlock *lock)
{
	struct brlock_slot *slot = brlock_read_lock_biased(lock);

	if (slot)
		return slot;
	pthread_rwlock_rdlock(&lock->inner);
	brlock_bias(lock);
	return NULL;
}

bool brlock_read_trylock(struct brlock *lock, brlock_token *token)
{
	*token = brlock_read_lock_biased(lock);
	if (*token)
		return true;
	if (pthread_rwlock_tryrdlock(&lock->inner))
		return false;
	brlock_bias(lock);
	return true;
}

void brlock_read_unlock(struct brlock *lock, brlock_token token)
{
	if (token)
		brlock_withdraw(token);
	else
		pthread_rwlock_unlock(&lock->inner);
}

/* A reader may be in a copy of milliseconds: the longer the wait, the more of the CPU is left to
 * the reader. */
static void brlock_wait(unsigned *n_waits)
{
	if (++*n_waits < SPINS)
		return;
	if (*n_waits < SPINS + SPIN_YIELDS)
		sched_yield();
	else
		nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
}

static bool brlock_row_names(const struct brlock_row *row, const struct brlock *lock)
{
	for (int i = 0; i < ROW_SLOTS; i++)
		if (atomic_load(&row->slots[i].held) == lock)
			return true;
	return false;
}

enum brlock_readers { WAIT_FOR_READERS, NO_READERS };

/* Under the inner lock, exclusive. False: a reader holds the lock, and readers says not to wait. */
static bool brlock_revoke(struct brlock *lock, enum brlock_readers readers)
{
	int64_t start = clock_ns();
	unsigned n_waits = 0;

	atomic_store(&lock->biased, false);
	/* A reader counts its thread before looking at the bias, so the row of a reader with bias
	 * is scanned. */
	unsigned long rows = atomic_load(&brlock_threads);
	for (unsigned long row = 0; row < rows && row < ROWS; row++)
		while (brlock_row_names(&brlock_table[row], lock)) {
			if (readers == NO_READERS) {
				atomic_store(&lock->biased, true);
				return false;
			}
			brlock_wait(&n_waits);
		}

	int64_t end = clock_ns();
	int64_t unbiased = UNBIAS_FACTOR * (end - start);
	lock->unbias_until = ticks_of(end + (unbiased < UNBIAS_MAX_NS ? unbiased : UNBIAS_MAX_NS));
	return true;
}

void brlock_write_lock(struct brlock *lock)
{
	pthread_rwlock_wrlock(&lock->inner);
	if (atomic_load_explicit(&lock->biased, memory_order_relaxed))
		brlock_revoke(lock, WAIT_FOR_READERS);
}

bool brlock_write_trylock(struct brlock *lock)
{
	if (pthread_rwlock_trywrlock(&lock->inner))
		return false;
	if (!atomic_load_explicit(&lock->biased, memory_order_relaxed) ||
	    brlock_revoke(lock, NO_READERS))
		return true;
	pthread_rwlock_unlock(&lock->inner);
	return false;
}

void brlock_write_unlock(struct brlock *lock)
{
	pthread_rwlock_unlock(&lock->inner);
}
