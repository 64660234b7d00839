/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Probe calls about checkpoints of the own process. */
#include <unistd.h>

#include "tests/driver/probe.h"

/* Calls in a locked process wait for ever: an alarm ends a group whose unlock did not work. */
#define PATIENCE 20

static void begin(void)
{
	alarm(PATIENCE);
	use_context(0);
}

static void say_state(const char *question)
{
	static const char *const names[] = {"running", "locked", "checkpointed", "failed"};
	CUprocessState state = CU_PROCESS_STATE_FAILED;

	need(cuCheckpointProcessGetState(getpid(), &state));
	say_text(question, names[state & 3]);
}

static void say_checkpoint(void)
{
	say("checkpoint: lock", cuCheckpointProcessLock(getpid(), NULL));
	say("checkpoint: checkpoint", cuCheckpointProcessCheckpoint(getpid(), NULL));
	say("checkpoint: restore", cuCheckpointProcessRestore(getpid(), NULL));
	say_state("checkpoint: state after the restore");
	say("checkpoint: unlock", cuCheckpointProcessUnlock(getpid(), NULL));
}

void checkpoint_states(void)
{
	int pid = getpid(), tid = 0;

	begin();
	say_state("checkpoint: state");
	say("checkpoint: restore thread", cuCheckpointProcessGetRestoreThreadId(pid, &tid));
	say("checkpoint: running, checkpoint", cuCheckpointProcessCheckpoint(pid, NULL));
	say("checkpoint: running, restore", cuCheckpointProcessRestore(pid, NULL));
	say("checkpoint: running, unlock", cuCheckpointProcessUnlock(pid, NULL));
	say("checkpoint: pid -1", cuCheckpointProcessLock(-1, NULL));
	say("checkpoint: lock", cuCheckpointProcessLock(pid, NULL));
	say_state("checkpoint: state after the lock");
	say("checkpoint: locked, lock", cuCheckpointProcessLock(pid, NULL));
	say("checkpoint: locked, restore", cuCheckpointProcessRestore(pid, NULL));
	say("checkpoint: checkpoint", cuCheckpointProcessCheckpoint(pid, NULL));
	say_state("checkpoint: state after the checkpoint");
	say("checkpoint: checkpointed, lock", cuCheckpointProcessLock(pid, NULL));
	say("checkpoint: checkpointed, checkpoint", cuCheckpointProcessCheckpoint(pid, NULL));
	say("checkpoint: checkpointed, unlock", cuCheckpointProcessUnlock(pid, NULL));
	say("checkpoint: restore", cuCheckpointProcessRestore(pid, NULL));
	say_state("checkpoint: state after the restore");
	say("checkpoint: unlock", cuCheckpointProcessUnlock(pid, NULL));
}

static CUmemGenericAllocationHandle import_of(CUmemGenericAllocationHandle handle)
{
	CUmemGenericAllocationHandle imported;
	int fd;

	need(cuMemExportToShareableHandle(&fd, handle, 1, 0));
	need(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
	close(fd);
	return imported;
}

void checkpoint_memory(void)
{
	CUdeviceptr address;
	char byte = 0;

	begin();
	address = chunk(0, 2 * MIB);
	need(cuMemsetD8_v2(address, 5, 64));
	say_checkpoint();
	say("checkpoint: copy from a device", cuMemcpyDtoH_v2(&byte, address, 1));
	say_text("checkpoint: the device's byte is kept", byte == 5 ? "yes" : "no");
}

/* An import that is given back before the checkpoint. */
void checkpoint_released(void)
{
	begin();
	need(cuMemRelease(import_of(create(0, 2 * MIB))));
	say_checkpoint();
}

void checkpoint_host(void)
{
	CUdeviceptr host;
	char byte = 0;

	begin();
	host = host_chunk(host_create(2 * MIB), 2 * MIB);
	*cpu(host) = 6;
	say_checkpoint();
	say("checkpoint: copy from host-located memory", cuMemcpyDtoH_v2(&byte, host, 1));
	say_text("checkpoint: the host's byte is kept", byte == 6 ? "yes" : "no");
}

void checkpoint_handle(void)
{
	begin();
	import_of(create(0, 2 * MIB));
	say_checkpoint();
}

/* The import of another process's memory was seen to fail the restore, with NOT_SUPPORTED. */
void checkpoint_import(void)
{
	CUdeviceptr address;
	CUdevice device;

	begin();
	address = reserve(2 * MIB);
	need(cuMemMap(address, 2 * MIB, 0, import_of(create(0, 2 * MIB)), 0));
	need(allow(address, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say_checkpoint();
	say("checkpoint: failed, cuCtxGetDevice", cuCtxGetDevice(&device));
	say("checkpoint: failed, cuMemsetD8", cuMemsetD8_v2(address, 1, 64));
	say("checkpoint: failed, lock", cuCheckpointProcessLock(getpid(), NULL));
	say("checkpoint: failed, cuMemUnmap", cuMemUnmap(address, 2 * MIB));
}

void checkpoint_host_import(void)
{
	begin();
	host_chunk(import_of(host_create(2 * MIB)), 2 * MIB);
	say_checkpoint();
}
