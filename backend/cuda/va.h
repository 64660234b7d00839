/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* An allocator of a reserved address range, in units of CHUNK_ALIGN: a bitmap, so that freeing
 * needs no memory. Takes no lock. */
#ifndef BACKEND_CUDA_VA_H
#define BACKEND_CUDA_VA_H

#include <stdint.h>

struct va {
	uint64_t *words; /* a set bit: allocated */
	uint64_t units;
};

/* bytes is a multiple of CHUNK_ALIGN. 0 or -ENOMEM. */
int va_init(struct va *va, uint64_t bytes);
void va_destroy(struct va *va);

/* First fit. bytes > 0, a multiple of CHUNK_ALIGN: 0, or -ENOSPC if no hole is large enough. */
int va_alloc(struct va *va, uint64_t bytes, uint64_t *offset);
void va_free(struct va *va, uint64_t offset, uint64_t bytes);

#endif
