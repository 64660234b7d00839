/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The parts of backend/stream/stream.c for each processor architecture: loops over whole lines, and
 * fences. */
#ifndef BACKEND_STREAM_STREAM_ARCH_H
#define BACKEND_STREAM_STREAM_ARCH_H

#include <stdbool.h>
#include <stddef.h>

/* The bytes that a processor fetches at once from a write-combined mapping, and that a full store
 * buffer has. */
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

/* stream_fence_stores: earlier stores are visible before later stores. stream_fence_loads: later
 * loads see memory as of this moment or newer. */
#if defined(__x86_64__)
static inline void stream_fence_stores(void)
{
	__builtin_ia32_sfence();
}

/* A streaming load may be served from an earlier load's buffer, although the device has written
 * since. mfence empties such buffers, and drains the processor's combined stores. */
static inline void stream_fence_loads(void)
{
	__builtin_ia32_mfence();
}
#elif defined(__aarch64__)
/* Outer shareable, because the device observes the stores as well. */
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
