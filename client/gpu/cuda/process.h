/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Checkpoints of other processes, by the driver. No lock. */
#ifndef CLIENT_GPU_CUDA_PROCESS_H
#define CLIENT_GPU_CUDA_PROCESS_H

#include <sys/types.h>

/* The state of a process's use of its GPUs. A locked process waits in the driver's calls; the GPU
 * memory of a checkpointed process is in system memory; a failed process can no longer use GPUs. */
enum client_process_state {
	CLIENT_PROCESS_RUNNING,
	CLIENT_PROCESS_LOCKED,
	CLIENT_PROCESS_CHECKPOINTED,
	CLIENT_PROCESS_FAILED
};

/* The enum client_process_state of another process. -ENOTSUP: the driver has no checkpoints.
 * -EINVAL: the process does not use the driver. */
int cuda_process_state(pid_t pid);
/* Brings another process from a state to the next, or back: running, locked, checkpointed. A lock
 * waits for the work of the process, and for some seconds at most. 0, or -errno with
 * client_error_text. */
int cuda_process_change(pid_t pid, enum client_process_state from, enum client_process_state to);

#endif
