/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* An order that the kernel keeps and the thread sanitizer does not see, because it does not go
 * through memory: for that alone, and nothing otherwise. What a thread did before tsan_release
 * comes before what any does after a later tsan_acquire, of the same address. */
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
