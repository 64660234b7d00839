/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Checkpoints of other processes by the driver. The driver moves all memory that a process has
 * allocated; memory that the process has imported cannot be restored, and fails the process. */
#include <errno.h>

#include "client/core/error.h"
#include "client/gpu/cuda/cuda.h"
#include "client/gpu/cuda/process.h"

#define LOCK_TIMEOUT_MS 10000

_Static_assert((int)CLIENT_PROCESS_RUNNING == (int)GM_CU_PROCESS_STATE_RUNNING &&
		   (int)CLIENT_PROCESS_LOCKED == (int)GM_CU_PROCESS_STATE_LOCKED &&
		   (int)CLIENT_PROCESS_CHECKPOINTED == (int)GM_CU_PROCESS_STATE_CHECKPOINTED &&
		   (int)CLIENT_PROCESS_FAILED == (int)GM_CU_PROCESS_STATE_FAILED,
	       "states are those of the driver");

/* cuInit makes no context. The real driver checkpoints processes without cuInit too, so a failure
 * of cuInit is left to the next call. */
static int driver_get(const struct client_cuda **cuda)
{
	int rc = client_cuda_get(cuda);

	if (rc < 0)
		return rc;
	if (!(*cuda)->cuCheckpointProcessGetState || !(*cuda)->cuCheckpointProcessLock ||
	    !(*cuda)->cuCheckpointProcessCheckpoint || !(*cuda)->cuCheckpointProcessRestore ||
	    !(*cuda)->cuCheckpointProcessUnlock)
		return client_fail(ENOTSUP, "this driver cannot checkpoint a process: version 570 "
					    "or a later version is needed");
	(*cuda)->cu.cuInit(0);
	return 0;
}

int cuda_process_state(pid_t pid)
{
	gm_CUprocessState state = GM_CU_PROCESS_STATE_FAILED;
	const struct client_cuda *cuda;

	int rc = driver_get(&cuda);
	if (rc == 0)
		rc = client_cuda_result(cuda, cuda->cuCheckpointProcessGetState(pid, &state),
					"cuCheckpointProcessGetState");
	return rc < 0 ? rc : (int)state;
}

int cuda_process_change(pid_t pid, enum client_process_state from, enum client_process_state to)
{
	gm_CUcheckpointLockArgs lock = {.timeoutMs = LOCK_TIMEOUT_MS};
	const struct client_cuda *cuda;

	int rc = driver_get(&cuda);
	if (rc < 0)
		return rc;
	if (to == CLIENT_PROCESS_CHECKPOINTED)
		return client_cuda_result(cuda, cuda->cuCheckpointProcessCheckpoint(pid, NULL),
					  "cuCheckpointProcessCheckpoint");
	if (to == CLIENT_PROCESS_RUNNING)
		return client_cuda_result(cuda, cuda->cuCheckpointProcessUnlock(pid, NULL),
					  "cuCheckpointProcessUnlock");
	if (from == CLIENT_PROCESS_RUNNING)
		return client_cuda_result(cuda, cuda->cuCheckpointProcessLock(pid, &lock),
					  "cuCheckpointProcessLock");
	return client_cuda_result(cuda, cuda->cuCheckpointProcessRestore(pid, NULL),
				  "cuCheckpointProcessRestore");
}
