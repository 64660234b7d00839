/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared functions of the stand-ins' own tests. Each test runs in its own process and has its own
 * settings, which take effect at cuInit. */
#ifndef DRIVER_SELFTEST_H
#define DRIVER_SELFTEST_H

#include <check.h>
#include <stdint.h>

#include "tests/driver/cuda_types.h"

#define MIB (1ULL << 20)

#define ck_cuda(call)		ck_assert_int_eq(call, CUDA_SUCCESS)
#define ck_cuda_is(call, error) ck_assert_int_eq(call, CUDA_ERROR_##error)

/* A chunk as the daemon makes chunks: created, mapped, accessible to its own device. */
struct chunk {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	size_t size;
};

CUcontext use_device(int device); /* cuInit and the primary context, current */
struct chunk chunk_new(int device, size_t size);
void chunk_map(struct chunk *chunk, int device); /* maps chunk->handle at a new address */
void chunk_free(struct chunk *chunk);
CUmemAllocationProp prop_of(int device);
CUmemAllocationProp host_prop(void); /* host-located memory */
void *pinned_new(size_t size, int fill);
void pinned_free(void *host, size_t size);
int export_fd(const struct chunk *chunk);

CUresult access_set(const struct chunk *chunk, CUmemLocationType type, int id,
		    CUmemAccess_flags flags);
/* Runs body in a process that ends normally, and reads the process's leak line. */
void leak_line(void (*body)(void), char *line, size_t size);

Suite *driver_suite(void);
Suite *faults_suite(void);
Suite *others_suite(void);
Suite *kernel_suite(void);
Suite *host_suite(void);
Suite *checkpoint_suite(void);

#endif
