/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* An order that the kernel keeps and the thread sanitizer does not see, because it does not go
 * through memory: for that alone, and nothing otherwise. What a thread did before order_before
 * comes before what any does after a later order_after, of the same address. */
#ifndef COMMON_TSAN_H
#define COMMON_TSAN_H

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>

static inline void order_before(void *of)
{
	__tsan_release(of);
}

static inline void order_after(void *of)
{
	__tsan_acquire(of);
}
#else
static inline void order_before(void *of)
{
	(void)of;
}

static inline void order_after(void *of)
{
	(void)of;
}
#endif

#endif
