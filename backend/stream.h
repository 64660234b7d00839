/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies between ordinary memory and a write-combined mapping. Plain loads from a BAR run at
 * 0.06 GB/s on the reference machine, streaming loads at 0.9 per thread; stores tie. The variant
 * (AVX-512, AVX2, SSE4.1, NEON, plain) is chosen once, by the CPU. */
#ifndef BACKEND_STREAM_H
#define BACKEND_STREAM_H

#include <stddef.h>

/* Uses non-temporal stores where aligned; a caller calls stream_fence before promising the bytes.
 */
void stream_store(void *to_device, const void *from, size_t bytes);
void stream_zero(void *to_device, size_t bytes);
void stream_load(void *to, const void *from_device, size_t bytes);
void stream_fence(void);

/* The variant's name for .gpumem/params: "avx512", "avx2", "sse4.1", "neon", "plain". */
const char *stream_name(void);
/* For tests: every variant this CPU runs, by index; NULL past the last. */
const char *stream_select(unsigned variant);

#endif
