/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests of checkpoints: a process that gives up its GPUs for a while and goes on. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver/helpers.h"
#include "tests/driver/selftest.h"

static CUprocessState process_state(void)
{
	CUprocessState state;

	ck_cuda(cuCheckpointProcessGetState(getpid(), &state));
	return state;
}

static void checkpoint(void)
{
	ck_cuda(cuCheckpointProcessLock(getpid(), NULL));
	ck_cuda(cuCheckpointProcessCheckpoint(getpid(), NULL));
	ck_assert_int_eq(process_state(), CU_PROCESS_STATE_CHECKPOINTED);
}

static void restore(void)
{
	ck_cuda(cuCheckpointProcessRestore(getpid(), NULL));
	ck_cuda(cuCheckpointProcessUnlock(getpid(), NULL));
	ck_assert_int_eq(process_state(), CU_PROCESS_STATE_RUNNING);
}

static uint64_t used(unsigned gpu)
{
	struct standin_gpu info;

	ck_assert_int_eq(standin_gpu_info(gpu, &info), 0);
	return info.used;
}

static uint8_t device_byte(CUdeviceptr address)
{
	uint8_t byte = 0;

	ck_cuda(cuMemcpyDtoH_v2(&byte, address, 1));
	return byte;
}

START_TEST(states_follow_each_other)
{
	int pid = getpid(), tid = 0;

	ck_cuda_is(cuCheckpointProcessLock(pid, NULL), NOT_INITIALIZED);
	use_device(0);
	ck_cuda_is(cuCheckpointProcessLock(getppid(), NULL), INVALID_VALUE);
	ck_cuda(cuCheckpointProcessGetRestoreThreadId(pid, &tid));
	ck_assert_int_gt(tid, 0);
	ck_cuda_is(cuCheckpointProcessCheckpoint(pid, NULL), ILLEGAL_STATE);
	ck_cuda_is(cuCheckpointProcessRestore(pid, NULL), ILLEGAL_STATE);
	ck_cuda_is(cuCheckpointProcessUnlock(pid, NULL), ILLEGAL_STATE);
	ck_assert_int_eq(process_state(), CU_PROCESS_STATE_RUNNING);
	ck_cuda(cuCheckpointProcessLock(pid, NULL));
	ck_assert_int_eq(process_state(), CU_PROCESS_STATE_LOCKED);
	ck_cuda_is(cuCheckpointProcessLock(pid, NULL), ILLEGAL_STATE);
	ck_cuda_is(cuCheckpointProcessRestore(pid, NULL), ILLEGAL_STATE);
	ck_cuda(cuCheckpointProcessUnlock(pid, NULL));
	checkpoint();
	ck_cuda_is(cuCheckpointProcessLock(pid, NULL), ILLEGAL_STATE);
	ck_cuda_is(cuCheckpointProcessCheckpoint(pid, NULL), ILLEGAL_STATE);
	ck_cuda_is(cuCheckpointProcessUnlock(pid, NULL), ILLEGAL_STATE);
	restore();
}
END_TEST

START_TEST(reserved_arguments_are_zero)
{
	CUcheckpointLockArgs lock = {.timeoutMs = 1000, .reserved1[6] = 1};
	CUcheckpointCheckpointArgs arguments = {.reserved[7] = 1};
	CUcheckpointRestoreArgs gpus = {.gpuPairsCount = 1};

	use_device(0);
	ck_cuda_is(cuCheckpointProcessLock(getpid(), &lock), INVALID_VALUE);
	lock.reserved1[6] = 0;
	ck_cuda(cuCheckpointProcessLock(getpid(), &lock));
	ck_cuda_is(cuCheckpointProcessCheckpoint(getpid(), &arguments), INVALID_VALUE);
	arguments.reserved[7] = 0;
	ck_cuda(cuCheckpointProcessCheckpoint(getpid(), &arguments));
	ck_cuda_is(cuCheckpointProcessRestore(getpid(), &gpus), NOT_SUPPORTED);
	restore();
}
END_TEST

START_TEST(memory_is_kept_at_its_addresses)
{
	CUdeviceptr old;

	setenv("GPUMEM_STANDIN_CONTEXT_MEMORY", "8M", 1);
	use_device(0);
	struct chunk first = chunk_new(0, 4 * MIB), second = chunk_new(1, 2 * MIB);
	ck_cuda(cuMemAlloc_v2(&old, 2 * MIB));
	ck_cuda(cuMemsetD8_v2(first.address, 1, 4 * MIB));
	ck_cuda(cuMemsetD8_v2(old, 2, 2 * MIB));
	checkpoint();
	ck_assert_uint_eq(used(0), 0);
	ck_assert_uint_eq(used(1), 0);
	restore();
	ck_assert_uint_eq(used(0), 14 * MIB);
	ck_assert_uint_eq(used(1), 2 * MIB);
	ck_assert_int_eq(device_byte(first.address + 4 * MIB - 1), 1);
	ck_assert_int_eq(device_byte(old + MIB), 2);
	use_device(1);
	ck_assert_int_eq(device_byte(second.address), 0xA5);
	chunk_free(&first);
	chunk_free(&second);
	ck_assert_uint_eq(used(1), 8 * MIB);
}
END_TEST

START_TEST(a_lock_waits_for_work)
{
	uint8_t *host;

	setenv("GPUMEM_STANDIN_DELAY_US", "50000", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	host = pinned_new(4096, 1);
	ck_cuda(cuMemcpyDtoHAsync_v2(host, chunk.address, 4096, NULL));
	ck_cuda(cuCheckpointProcessLock(getpid(), NULL));
	ck_assert_int_eq(host[0], 0xA5);
}
END_TEST

START_TEST(a_restore_needs_room)
{
	char path[] = "/tmp/standin-taken-XXXXXX";
	int fd = mkstemp(path);

	setenv("GPUMEM_STANDIN_MEMORY", "64M", 1);
	setenv("GPUMEM_STANDIN_TAKEN_FILE", path, 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 32 * MIB);
	checkpoint();
	ck_assert_int_gt(dprintf(fd, "device0=40M\n"), 0);
	ck_cuda_is(cuCheckpointProcessRestore(getpid(), NULL), OUT_OF_MEMORY);
	ck_assert_int_eq(process_state(), CU_PROCESS_STATE_CHECKPOINTED);
	ck_assert_uint_eq(used(0), 40 * MIB);
	unlink(path);
	restore();
	ck_assert_uint_eq(used(0), 32 * MIB);
	ck_assert_int_eq(device_byte(chunk.address), 0xA5);
	close(fd);
}
END_TEST

static struct chunk import(int fd)
{
	struct chunk chunk = {.size = 2 * MIB};

	ck_cuda(cuMemImportFromShareableHandle(&chunk.handle, (void *)(intptr_t)fd, 1));
	return chunk;
}

enum left {
	HANDLE_AND_MAPPING,
	MAPPING,
	RETAINED_HANDLE,
	HANDLE,
	HOST_MEMORY,
	OWN_HOST_MEMORY,
	N_LEFT
};

/* Device memory or host-located memory is imported, and an object of the import is left; or
 * host-located memory of the process's own. */
static void memory_make(enum left left)
{
	CUmemAllocationProp prop = left >= HOST_MEMORY ? host_prop() : prop_of(0);
	struct chunk chunk = {.size = 2 * MIB};
	CUmemGenericAllocationHandle again;

	ck_cuda(cuMemCreate(&chunk.handle, chunk.size, &prop, 0));
	if (left != OWN_HOST_MEMORY)
		chunk = import(export_fd(&chunk));
	if (left == HANDLE)
		return;
	chunk_map(&chunk, 0);
	if (left == MAPPING || left == RETAINED_HANDLE)
		ck_cuda(cuMemRelease(chunk.handle));
	if (left == RETAINED_HANDLE) {
		ck_cuda(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)chunk.address));
		ck_cuda(cuMemUnmap(chunk.address, chunk.size));
	}
}

START_TEST(some_memory_ends_the_process_at_the_restore)
{
	CUresult refusal = _i >= HOST_MEMORY ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_NOT_SUPPORTED;
	size_t available, total;

	use_device(0);
	memory_make((enum left)_i);
	checkpoint();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(cuCheckpointProcessRestore(getpid(), NULL), refusal);
		ck_assert_int_eq(process_state(), CU_PROCESS_STATE_CHECKPOINTED);
	}
	ck_cuda_is(cuCheckpointProcessUnlock(getpid(), NULL), ILLEGAL_STATE);
	ck_cuda_is(cuCheckpointProcessLock(getpid(), NULL), ILLEGAL_STATE);
	ck_cuda_is(cuMemGetInfo_v2(&available, &total), NOT_READY);
}
END_TEST

/* The exporter lives on; the process gives its import up before the checkpoint and imports the
 * memory again after the restore. */
START_TEST(an_import_given_up_comes_back)
{
	int to_parent[2], to_child[2], status;
	char path[64];

	ck_assert_int_eq(pipe(to_parent) | pipe(to_child), 0);
	pid_t child = fork();
	if (!child) {
		use_device(0);
		struct chunk shared = chunk_new(0, 2 * MIB);
		ck_cuda(cuMemsetD8_v2(shared.address, 3, 2 * MIB));
		ck_cuda(cuCtxSynchronize());
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), export_fd(&shared));
		if (write(to_parent[1], path, sizeof(path)) != sizeof(path) ||
		    read(to_child[0], path, 1) != 1)
			_exit(1);
		_exit(device_byte(shared.address) == 4 ? 0 : 2);
	}
	ck_assert_int_eq(read(to_parent[0], path, sizeof(path)), sizeof(path));
	int fd = open(path, O_PATH);
	use_device(0);
	struct chunk own = chunk_new(0, 2 * MIB), chunk = import(fd);
	chunk_map(&chunk, 0);
	CUdeviceptr address = chunk.address;
	ck_cuda(cuMemUnmap(address, chunk.size));
	ck_cuda(cuMemRelease(chunk.handle));
	checkpoint();
	restore();
	ck_assert_int_eq(device_byte(own.address), 0xA5);
	chunk = import(fd);
	ck_cuda(cuMemMap(address, chunk.size, 0, chunk.handle, 0));
	chunk.address = address;
	ck_cuda(access_set(&chunk, CU_MEM_LOCATION_TYPE_DEVICE, 0, 3));
	ck_assert_int_eq(device_byte(address), 3);
	ck_cuda(cuMemsetD8_v2(address, 4, 1));
	ck_cuda(cuCtxSynchronize());
	ck_assert_int_eq(write(to_child[1], "", 1), 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* A checkpoint releases the memory; a descriptor that was exported before keeps the old bytes. */
START_TEST(restored_memory_is_new_memory)
{
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	int fd = export_fd(&chunk);
	checkpoint();
	restore();
	ck_cuda(cuMemsetD8_v2(chunk.address, 1, 1));
	struct chunk before = import(fd), after = import(export_fd(&chunk));
	chunk_map(&before, 0);
	chunk_map(&after, 0);
	ck_assert_int_eq(device_byte(before.address), 0xA5);
	ck_assert_int_eq(device_byte(after.address), 1);
}
END_TEST

static void calls_while_locked(void)
{
	size_t available, total;

	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	ck_cuda(cuCheckpointProcessLock(getpid(), NULL));
	ck_cuda_is(cuMemGetInfo_v2(&available, &total), NOT_READY);
	ck_cuda(cuCheckpointProcessCheckpoint(getpid(), NULL));
	ck_cuda_is(cuMemUnmap(chunk.address, chunk.size), NOT_READY);
	ck_cuda_is(cuMemRelease(chunk.handle), NOT_READY);
	restore();
	chunk_free(&chunk);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
}

START_TEST(calls_while_locked_are_violations)
{
	char line[512];

	leak_line(calls_while_locked, line, sizeof(line));
	ck_assert_ptr_nonnull(strstr(line, "memory=0 handles=0 mappings=0 "));
	ck_assert_ptr_nonnull(strstr(line, "violations=3"));
}
END_TEST

Suite *checkpoint_suite(void)
{
	Suite *suite = suite_create("checkpoint");
	TCase *tc = tcase_create("checkpoint");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, states_follow_each_other);
	tcase_add_test(tc, reserved_arguments_are_zero);
	tcase_add_test(tc, memory_is_kept_at_its_addresses);
	tcase_add_test(tc, a_lock_waits_for_work);
	tcase_add_test(tc, a_restore_needs_room);
	tcase_add_loop_test(tc, some_memory_ends_the_process_at_the_restore, 0, N_LEFT);
	tcase_add_test(tc, an_import_given_up_comes_back);
	tcase_add_test(tc, restored_memory_is_new_memory);
	tcase_add_test(tc, calls_while_locked_are_violations);
	suite_add_tcase(suite, tc);
	return suite;
}
