/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* An order between threads that the kernel guarantees and the thread sanitizer cannot see, because
 * it does not go through memory. The stores of a thread before tsan_release are visible to a thread
 * after a later tsan_acquire of the same address. Without the sanitizer both do nothing. */
#ifndef COMMON_TSAN_H
#define COMMON_TSAN_H

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>

static inline void tsan_release(void *of)
{
	__tsan_release(of);
}

static inline void tsan_acquire(void *of)
{
	__tsan_acquire(of);
}
#else
static inline void tsan_release(void *of)
{
	(void)of;
}

static inline void tsan_acquire(void *of)
{
	(void)of;
}
#endif

#endif
