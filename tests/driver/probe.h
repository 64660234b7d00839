/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared functions of the probe's groups of calls. */
#ifndef DRIVER_PROBE_H
#define DRIVER_PROBE_H

#include "tests/driver/cuda_types.h"

#define MIB (1ULL << 20)

void say(const char *question, CUresult result);
void say_text(const char *question, const char *answer);
void need(CUresult result); /* ends the process on an error */

extern CUcontext context; /* of device 0, after a call of use_context */
void use_context(int device);
CUmemAllocationProp prop_of(int device);
CUmemGenericAllocationHandle create(int device, size_t size);
CUdeviceptr reserve(size_t size);
CUresult allow(CUdeviceptr address, size_t size, int device, CUmemAccess_flags flags);
CUdeviceptr chunk(int device, size_t size);

/* Host-located memory; host_chunk maps with access for device 0 and for the CPU. */
CUmemGenericAllocationHandle host_create(size_t size);
CUdeviceptr host_chunk(CUmemGenericAllocationHandle handle, size_t size);
char *cpu(CUdeviceptr address);

void before_init(void);
void after_fork(void);
void without_context(void);
void without_context_others(void);
void creation(void);
void reservation(void);
void mapping(void);
void mapping_many(void);
void release_twice(void);
void no_access_copy(void);
void no_access_set(void);
void partly_mapped(void);
void read_only(void);
void copies(void);
void touch_device_memory(void);
void pinning(void);
void pinning_in_part(void);
void contexts(void);
void streams(void);
void sharing(void);
void old_allocations(void);
void in_flight_unmap(void);
void in_flight_unpin(void);
void in_flight_destroy(void);
void after_failure(void);
void after_failure_others(void);
void free_mapping(void);
void access_twice(void);
void dmabuf(void);
void two_gpus(void);
void two_gpus_set(void);
void two_gpus_pin(void);
void host_creation(void);
void host_access(void);
void host_copies(void);
void host_sharing(void);
void host_pointers(void);
void checkpoint_states(void);
void checkpoint_memory(void);
void checkpoint_released(void);
void checkpoint_host(void);
void checkpoint_handle(void);
void checkpoint_import(void);
void checkpoint_host_import(void);

#endif
