/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory of cudaMalloc. CUDA gives it to other processes by a handle of 64 bytes and not by a
 * descriptor: so the handle is put into a sealed memfd, which goes wherever descriptors go. */
#ifndef COMMON_SYSTEM_IPC_MEMORY_H
#define COMMON_SYSTEM_IPC_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#define IPC_HANDLE_BYTES 64 /* CU_IPC_HANDLE_SIZE of cuda.h */

struct ipc_memory {
	uint64_t bytes; /* of the allocation */
	uint8_t handle[IPC_HANDLE_BYTES];
};

/* A new memfd, or -errno. */
int ipc_memory_seal(const struct ipc_memory *memory);
/* Whether fd is such a memfd; then *memory is what is in it. fd may be any descriptor. */
bool ipc_memory_read(int fd, struct ipc_memory *memory);

#endif
