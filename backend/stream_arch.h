/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The parts of backend/stream.c that depend on the CPU: the loops over whole lines, and the fences.
 */
#ifndef BACKEND_STREAM_ARCH_H
#define BACKEND_STREAM_ARCH_H

#include <stdbool.h>
#include <stddef.h>

/* The bytes that a CPU fetches from a write-combined mapping at once, and that fill a store buffer.
 */
#define STREAM_LINE 64

/* The device side is aligned to STREAM_LINE, the other side need not be; lines may be 0. */
struct stream_variant {
	const char *name;
	bool (*usable)(void);
	void (*store)(char *to_device, const char *from, size_t lines);
	void (*zero)(char *to_device, size_t lines);
	void (*load)(char *to, const char *from_device, size_t lines);
};

#if defined(__x86_64__) || defined(__aarch64__)
/* Fastest first; ends with an entry without a name. */
extern const struct stream_variant stream_arch[];
#else
static const struct stream_variant stream_arch[] = {{0}};
#endif

/* stream_fence_stores: every earlier store is visible before any later store. stream_fence_loads:
 * later loads return nothing older than this moment. */
#if defined(__x86_64__)
static inline void stream_fence_stores(void)
{
	__builtin_ia32_sfence();
}

/* A streaming load may be answered from a buffer that an earlier load filled, even if the device
 * has written since; mfence empties those buffers, and drains this CPU's combined stores. */
static inline void stream_fence_loads(void)
{
	__builtin_ia32_mfence();
}
#elif defined(__aarch64__)
/* Outer shareable: the device is an observer too. */
static inline void stream_fence_stores(void)
{
	__asm__ volatile("dmb osh" ::: "memory");
}

static inline void stream_fence_loads(void)
{
	__asm__ volatile("dmb osh" ::: "memory");
}
#else
static inline void stream_fence_stores(void)
{
	__sync_synchronize();
}

static inline void stream_fence_loads(void)
{
	__sync_synchronize();
}
#endif

#endif
