/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory of cudaMalloc of other processes. The driver keeps it while it is open, also after its
 * process has freed it or has ended, and opens it only before that. */
#ifndef BACKEND_CUDA_IPC_H
#define BACKEND_CUDA_IPC_H

#include "backend/cuda/driver/abi.h"

struct cuda_device;

/* As cuda_result, for an import of another program's memory: -EINVAL for the results that a
 * descriptor of other things has, of which CUDA_ERROR_UNKNOWN otherwise means that a GPU fell off
 * the bus. */
int cuda_import_result(struct cuda_device *device, gm_CUresult result, const char *call);

/* The context of the device is current. *bytes: of the allocation, which ends in the last unit of
 * the chunk. 0; -ENOENT: fd is no such memory; -EINVAL: the memory is gone, of another device, or
 * of another size; or another -errno. */
int cuda_ipc_open(struct cuda_device *device, int fd, uint64_t chunk_bytes, gm_CUdeviceptr *address,
		  uint64_t *bytes);
void cuda_ipc_close(struct cuda_device *device, gm_CUdeviceptr address);

#endif
