/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* An order between threads by the kernel's guarantee, invisible to the thread sanitizer, because no
 * memory access is involved. The stores of a thread before tsan_release are visible to a thread
 * after a later tsan_acquire of the same address. Without the sanitizer both are empty. */
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
