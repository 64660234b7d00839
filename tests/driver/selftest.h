/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the stand-ins' own tests share. Each test has a process of its own, and so its own settings,
 * which count from cuInit on. */
#ifndef DRIVER_SELFTEST_H
#define DRIVER_SELFTEST_H

#include <check.h>
#include <stdint.h>

#include "tests/driver/cuda_types.h"

#define MIB (1ULL << 20)

#define ck_cuda(call)		ck_assert_int_eq(call, CUDA_SUCCESS)
#define ck_cuda_is(call, error) ck_assert_int_eq(call, CUDA_ERROR_##error)

/* A chunk as the daemon makes them: created, mapped, its own device let in. */
struct chunk {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	size_t size;
};

CUcontext use_device(int device); /* cuInit and the primary context, current */
struct chunk chunk_new(int device, size_t size);
void chunk_map(struct chunk *chunk, int device); /* chunk->handle, at an address of its own */
void chunk_free(struct chunk *chunk);
CUmemAllocationProp prop_of(int device);
void *pinned_new(size_t size, int fill);
void pinned_free(void *host, size_t size);
int export_fd(const struct chunk *chunk);

Suite *driver_suite(void);
Suite *faults_suite(void);
Suite *others_suite(void);
Suite *kernel_suite(void);

#endif
