/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/brlock.h"
#include "common/clock.h"

#include <sched.h>
#include <stddef.h>
#include <time.h>

/* A thread owns a row of the table, so what it publishes lies on lines no other thread writes
 * (until there have been more threads than rows, when some share). 128: lines are prefetched in
 * pairs. */
#define ROWS	  512
#define ROW_SLOTS 8
#define ROW_ALIGN 128

/* Readers do without the bias for this many times as long as the last revocation took, so that
 * revoking costs the writers a tenth at most; but no longer than a scan of the whole table
 * justifies: the rest was waiting for readers, as with any lock. */
#define UNBIAS_FACTOR 9
#define UNBIAS_MAX_NS 1000000

/* Of CLOCK_MONOTONIC: 2^16 ns, so that half of what 32 bits count is 39 hours. A guard that nobody
 * entered for longer may do without its bias for as long again. */
#define TICK_SHIFT 16

#define SPINS	    200
#define SPIN_YIELDS 20
#define WAIT_NS	    50000

struct brlock_slot {
	_Atomic(struct brlock *) held;
};

static struct brlock_row {
	_Alignas(ROW_ALIGN) struct brlock_slot slots[ROW_SLOTS];
} table[ROWS];

/* Threads that ever entered a guard. A writer need not look past the rows they were given. */
static atomic_ulong threads;

static _Thread_local struct brlock_row *own_row;

static uint32_t ticks_of(int64_t ns)
{
	return (uint32_t)((uint64_t)ns >> TICK_SHIFT);
}

/* The default kind, in which readers pass a waiting writer. It cannot starve: soon a reader brings
 * back the bias, those after it keep off the inner lock and the writer gets it. The kind that
 * prefers writers would let them starve the readers. */
void brlock_init(struct brlock *guard)
{
	pthread_rwlock_init(&guard->inner, NULL);
	atomic_init(&guard->biased, true);
	guard->unbias_until = 0; /* read after the bias was revoked, which sets it */
}

void brlock_destroy(struct brlock *guard)
{
	pthread_rwlock_destroy(&guard->inner);
}

static struct brlock_row *brlock_own_row(void)
{
	if (!own_row)
		own_row = &table[atomic_fetch_add(&threads, 1) % ROWS];
	return own_row;
}

/* Names the guard in a free slot of the thread's row: NULL when it already holds that many. */
static struct brlock_slot *brlock_publish(struct brlock *guard)
{
	struct brlock_row *row = brlock_own_row();
	for (int i = 0; i < ROW_SLOTS; i++) {
		struct brlock_slot *slot = &row->slots[i];
		struct brlock *none = NULL;
		if (!atomic_load_explicit(&slot->held, memory_order_relaxed) &&
		    atomic_compare_exchange_strong(&slot->held, &none, guard))
			return slot;
	}
	return NULL;
}

static void brlock_withdraw(struct brlock_slot *slot)
{
	atomic_store_explicit(&slot->held, NULL, memory_order_release);
}

/* NULL: by the inner lock. */
static struct brlock_slot *brlock_read_lock_biased(struct brlock *guard)
{
	if (!atomic_load_explicit(&guard->biased, memory_order_relaxed))
		return NULL;
	struct brlock_slot *slot = brlock_publish(guard);
	/* The reader writes its slot and reads the bias, the writer writes the bias and reads the
	 * slots: with all four sequentially consistent, one must see the other. */
	if (slot && atomic_load(&guard->biased))
		return slot;
	if (slot)
		brlock_withdraw(slot);
	return NULL;
}

/* Under the shared inner lock, where no writer can be revoking. */
static void brlock_bias(struct brlock *guard)
{
	if (!atomic_load_explicit(&guard->biased, memory_order_relaxed) &&
	    (int32_t)(ticks_of(clock_ns()) - guard->unbias_until) >= 0)
		atomic_store(&guard->biased, true);
}

brlock_token brlock_read_lock(struct brlock *guard)
{
	struct brlock_slot *slot = brlock_read_lock_biased(guard);

	if (slot)
		return slot;
	pthread_rwlock_rdlock(&guard->inner);
	brlock_bias(guard);
	return NULL;
}

bool brlock_read_trylock(struct brlock *guard, brlock_token *token)
{
	*token = brlock_read_lock_biased(guard);
	if (*token)
		return true;
	if (pthread_rwlock_tryrdlock(&guard->inner))
		return false;
	brlock_bias(guard);
	return true;
}

void brlock_read_unlock(struct brlock *guard, brlock_token token)
{
	if (token)
		brlock_withdraw(token);
	else
		pthread_rwlock_unlock(&guard->inner);
}

/* A reader may be in a copy of milliseconds: the longer the wait, the more the CPU is left to it.
 */
static void brlock_wait(unsigned *waits)
{
	if (++*waits < SPINS)
		return;
	if (*waits < SPINS + SPIN_YIELDS)
		sched_yield();
	else
		nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
}

static bool brlock_row_names(const struct brlock_row *row, const struct brlock *guard)
{
	for (int i = 0; i < ROW_SLOTS; i++)
		if (atomic_load(&row->slots[i].held) == guard)
			return true;
	return false;
}

enum brlock_readers { WAIT_FOR_READERS, NO_READERS };

/* Under the inner lock, exclusive. False: there are readers, who are not waited for. */
static bool brlock_revoke(struct brlock *guard, enum brlock_readers readers)
{
	int64_t start = clock_ns();
	unsigned waits = 0;

	atomic_store(&guard->biased, false);
	/* A reader that still saw the bias counted its thread before that, so its row is covered.
	 */
	unsigned long rows = atomic_load(&threads);
	for (unsigned long row = 0; row < rows && row < ROWS; row++)
		while (brlock_row_names(&table[row], guard)) {
			if (readers == NO_READERS) {
				atomic_store(&guard->biased, true);
				return false;
			}
			brlock_wait(&waits);
		}

	int64_t end = clock_ns();
	int64_t unbiased = UNBIAS_FACTOR * (end - start);
	guard->unbias_until = ticks_of(end + (unbiased < UNBIAS_MAX_NS ? unbiased : UNBIAS_MAX_NS));
	return true;
}

void brlock_write_lock(struct brlock *guard)
{
	pthread_rwlock_wrlock(&guard->inner);
	if (atomic_load_explicit(&guard->biased, memory_order_relaxed))
		brlock_revoke(guard, WAIT_FOR_READERS);
}

bool brlock_write_trylock(struct brlock *guard)
{
	if (pthread_rwlock_trywrlock(&guard->inner))
		return false;
	if (!atomic_load_explicit(&guard->biased, memory_order_relaxed) ||
	    brlock_revoke(guard, NO_READERS))
		return true;
	pthread_rwlock_unlock(&guard->inner);
	return false;
}

void brlock_write_unlock(struct brlock *guard)
{
	pthread_rwlock_unlock(&guard->inner);
}
