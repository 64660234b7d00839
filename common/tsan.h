/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the thread sanitizer must be told. It does not see an order between threads by the kernel's
 * guarantee, because no memory access is involved: the stores of a thread before tsan_release are
 * visible to a thread after a later tsan_acquire of the same address. Without the sanitizer these
 * functions are empty. */
#ifndef COMMON_TSAN_H
#define COMMON_TSAN_H

#include <stdatomic.h>
#include <stdint.h>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>

static inline void tsan_release(void *address)
{
	__tsan_release(address);
}

static inline void tsan_acquire(void *address)
{
	__tsan_acquire(address);
}

/* For a lock that is taken or made new by a way that the sanitizer does not see. */
static inline void tsan_lock_taken(void *lock)
{
	__tsan_mutex_pre_lock(lock, 0);
	__tsan_mutex_post_lock(lock, 0, 0);
}

static inline void tsan_lock_dropped(void *lock)
{
	__tsan_mutex_pre_unlock(lock, 0);
	__tsan_mutex_post_unlock(lock, 0);
}

static inline uint8_t fence_and_load(_Atomic uint8_t *counter)
{
	return atomic_fetch_add(counter, 0);
}
#else
static inline void tsan_release(void *address)
{
	(void)address;
}

static inline void tsan_acquire(void *address)
{
	(void)address;
}

static inline void tsan_lock_taken(void *lock)
{
	(void)lock;
}

static inline void tsan_lock_dropped(void *lock)
{
	(void)lock;
}

/* The value of a counter, after a full fence, of which the sanitizer knows nothing. Unlike the
 * read-modify-write that replaces it there, the fence leaves the counter's cache line shared. */
static inline uint8_t fence_and_load(_Atomic uint8_t *counter)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(counter, memory_order_relaxed);
}
#endif

#endif
