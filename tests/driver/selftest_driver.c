/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests the stand-in libcuda.so.1 against the promises in README.md. probe.c covers the behaviour
 * that the stand-in shares with the real driver. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver/selftest.h"

static CUstream stream_new(void)
{
	CUstream stream;

	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

START_TEST(new_memory_is_not_zero)
{
	uint8_t byte = 0;

	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	ck_cuda(cuMemcpyDtoH_v2(&byte, chunk.address + MIB, 1));
	ck_assert_int_eq(byte, 0xA5);
	chunk_free(&chunk);
}
END_TEST

START_TEST(bytes_survive_the_round_trip)
{
	size_t size = 4 * MIB;

	use_device(0);
	struct chunk chunk = chunk_new(0, size);
	uint8_t *in = pinned_new(size, 0), *out = pinned_new(size, 0);
	CUstream stream = stream_new();
	for (size_t i = 0; i < size; i++)
		in[i] = (uint8_t)(i * 2654435761u >> 13);
	ck_cuda(cuMemcpyHtoDAsync_v2(chunk.address, in, size, stream));
	ck_cuda(cuMemcpyDtoHAsync_v2(out, chunk.address, size, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_mem_eq(in, out, size);
	ck_cuda(cuStreamDestroy_v2(stream));
	pinned_free(in, size);
	pinned_free(out, size);
	chunk_free(&chunk);
}
END_TEST

/* Reads a byte early. ThreadSanitizer would rightly report the read as a race. */
__attribute__((noinline, no_sanitize("thread"))) static uint8_t peek(const volatile uint8_t *byte)
{
	return *byte;
}

/* The early read sees the bytes that a program without a wait would see. */
START_TEST(copies_are_late)
{
	setenv("GPUMEM_STANDIN_DELAY_US", "100000", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	uint8_t *host = pinned_new(4096, 1);
	CUstream stream = stream_new();
	ck_cuda(cuMemcpyDtoHAsync_v2(host, chunk.address, 4096, stream));
	ck_cuda_is(cuStreamQuery(stream), NOT_READY);
	ck_assert_int_eq(peek(host), 1);
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_int_eq(host[0], 0xA5);
	ck_cuda(cuStreamQuery(stream));
}
END_TEST

START_TEST(filling_without_a_stream_does_not_wait)
{
	uint8_t byte = 0;

	setenv("GPUMEM_STANDIN_DELAY_US", "50000", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	ck_cuda(cuMemsetD8_v2(chunk.address, 7, 2 * MIB));
	ck_cuda_is(cuStreamQuery(NULL), NOT_READY);
	ck_cuda(cuMemcpyDtoH_v2(&byte, chunk.address, 1));
	ck_assert_int_eq(byte, 7);
}
END_TEST

START_TEST(events_order_streams)
{
	uint8_t *host, *seen;
	CUevent event;

	setenv("GPUMEM_STANDIN_DELAY_US", "20000", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	CUstream first = stream_new(), second = stream_new();
	host = pinned_new(4096, 9);
	seen = pinned_new(4096, 0);
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	/* The first stream's work takes longer than the second stream's work before the copy. */
	for (int i = 0; i < 6; i++)
		ck_cuda(cuMemsetD8Async(chunk.address, 1, 4096, first));
	ck_cuda(cuMemcpyHtoDAsync_v2(chunk.address, host, 4096, first));
	ck_cuda(cuEventRecord(event, first));
	ck_cuda_is(cuEventQuery(event), NOT_READY);
	ck_cuda(cuStreamWaitEvent(second, event, 0));
	ck_cuda(cuMemcpyDtoHAsync_v2(seen, chunk.address, 4096, second));
	ck_cuda(cuStreamSynchronize(second));
	ck_assert_int_eq(seen[4095], 9);
	ck_cuda(cuEventSynchronize(event));
	ck_cuda(cuEventDestroy_v2(event));
}
END_TEST

START_TEST(words_order_streams)
{
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	CUstream first = stream_new(), second = stream_new();
	uint8_t *seen = pinned_new(4096, 0);

	ck_cuda(cuMemsetD8Async(chunk.address, 0, 8, first));
	ck_cuda(cuStreamSynchronize(first));
	ck_cuda(cuStreamWaitValue64_v2(second, chunk.address, 5, 0));
	ck_cuda(cuMemcpyDtoHAsync_v2(seen, chunk.address, 8, second));
	ck_cuda_is(cuStreamQuery(second), NOT_READY);
	ck_cuda(cuStreamWriteValue64_v2(first, chunk.address, 7, 0));
	ck_cuda(cuStreamSynchronize(second));
	ck_assert_int_eq(seen[0], 7);
	ck_cuda_is(cuStreamWriteValue64_v2(first, chunk.address + 4, 7, 0), INVALID_VALUE);
	ck_cuda_is(cuStreamWaitValue64_v2(first, 0, 7, 0), INVALID_VALUE);
}
END_TEST

START_TEST(blocking_streams_are_ordered_with_the_contexts_own)
{
	uint8_t byte = 0;
	CUstream blocking;

	setenv("GPUMEM_STANDIN_DELAY_US", "20000", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	ck_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	for (int i = 1; i <= 4; i++)
		ck_cuda(cuMemsetD8Async(chunk.address, (unsigned char)i, 64, blocking));
	ck_cuda(cuMemcpyDtoH_v2(&byte, chunk.address, 1));
	ck_assert_int_eq(byte, 4);
	ck_cuda(cuStreamDestroy_v2(blocking));
}
END_TEST

START_TEST(a_primary_context_is_made_anew)
{
	size_t available, total;
	CUcontext first = use_device(0);

	ck_cuda(cuCtxSetCurrent(NULL));
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	ck_cuda_is(cuCtxSetCurrent(first), INVALID_CONTEXT);
	ck_assert_ptr_ne(use_device(0), first);
	ck_cuda(cuMemGetInfo_v2(&available, &total));
}
END_TEST

START_TEST(a_destroyed_stream_finishes_its_work)
{
	setenv("GPUMEM_STANDIN_DELAY_US", "20000", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	CUstream stream = stream_new();
	uint8_t *host = pinned_new(4096, 1);
	ck_cuda(cuMemcpyDtoHAsync_v2(host, chunk.address, 4096, stream));
	ck_cuda(cuStreamDestroy_v2(stream));
	ck_cuda_is(cuStreamDestroy_v2(stream), INVALID_HANDLE);
	ck_cuda_is(cuStreamSynchronize(stream), INVALID_HANDLE);
	ck_cuda(cuCtxSynchronize());
	ck_assert_int_eq(host[0], 0xA5);
}
END_TEST

START_TEST(unknown_handles_are_refused)
{
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	ck_cuda_is(cuMemRelease(0x1230), INVALID_VALUE);
	ck_cuda_is(cuMemFree_v2(chunk.address), INVALID_VALUE);
	ck_cuda_is(cuCtxSetCurrent((CUcontext)0x123456), INVALID_CONTEXT);
	ck_cuda_is(cuEventDestroy_v2((CUevent)0x50), INVALID_HANDLE);
	ck_cuda_is(cuStreamQuery((CUstream)0x50), INVALID_HANDLE);
	chunk_free(&chunk);
	ck_cuda_is(cuMemUnmap(chunk.address, chunk.size), INVALID_VALUE);
	ck_cuda_is(cuMemRelease(chunk.handle), INVALID_VALUE);
}
END_TEST

static size_t free_memory(void)
{
	size_t available, total;

	ck_cuda(cuMemGetInfo_v2(&available, &total));
	ck_assert_uint_eq(total, 64 * MIB);
	return available;
}

START_TEST(memory_is_accounted)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle handle, imported;

	setenv("GPUMEM_STANDIN_MEMORY", "64M", 1);
	use_device(0);
	ck_assert_uint_eq(free_memory(), 64 * MIB);
	struct chunk chunk = chunk_new(0, 32 * MIB);
	ck_assert_uint_eq(free_memory(), 32 * MIB);
	ck_cuda_is(cuMemCreate(&handle, 34 * MIB, &prop, 0), OUT_OF_MEMORY);
	int fd = export_fd(&chunk);
	ck_cuda(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
	ck_assert_uint_eq(free_memory(), 32 * MIB);
	chunk_free(&chunk);
	ck_assert_uint_eq(free_memory(), 32 * MIB);
	ck_cuda(cuMemRelease(imported));
	ck_assert_uint_eq(free_memory(), 64 * MIB);
	close(fd);
}
END_TEST

/* A program that frees a range can have the same addresses again. */
START_TEST(wanted_addresses)
{
	CUdeviceptr first, second, other;

	use_device(0);
	ck_cuda(cuMemAddressReserve(&first, 8 * MIB, 0, 0, 0));
	ck_cuda(cuMemAddressFree(first, 8 * MIB));
	ck_cuda(cuMemAddressReserve(&second, 4 * MIB, 0, first, 0));
	ck_assert_uint_eq(second, first);
	ck_cuda(cuMemAddressReserve(&other, 4 * MIB, 0, first, 0));
	ck_assert_uint_ne(other, first);
	ck_cuda(cuMemAddressFree(second, 4 * MIB));
	ck_cuda(cuMemAddressFree(other, 4 * MIB));
}
END_TEST

START_TEST(another_process_imports)
{
	struct stat state;
	int fds[2], status;
	char ready;

	ck_assert_int_eq(pipe(fds), 0);
	/* The parent of the child must have no driver: the child forks first and receives the fd
	 * through /proc. */
	pid_t child = fork();
	if (!child) {
		char path[64];
		int fd;
		uint8_t byte = 0;
		struct chunk chunk = {.size = 2 * MIB};

		if (read(fds[0], path, sizeof(path)) <= 0)
			_exit(1);
		fd = open(path, O_PATH);
		use_device(0);
		ck_cuda(cuMemImportFromShareableHandle(&chunk.handle, (void *)(intptr_t)fd, 1));
		chunk_map(&chunk, 0);
		ck_cuda(cuMemcpyDtoH_v2(&byte, chunk.address + 5, 1));
		ck_cuda(cuMemsetD8_v2(chunk.address, 0x77, 1));
		ck_cuda(cuCtxSynchronize());
		_exit(byte == 0x66 ? 0 : 2);
	}
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	int fd = export_fd(&chunk);
	ck_assert_int_eq(fstat(fd, &state), 0);
	ck_assert_int_eq(state.st_size, 2 * MIB);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
	ck_cuda(cuMemsetD8_v2(chunk.address, 0x66, 2 * MIB));
	ck_cuda(cuCtxSynchronize());
	char path[64] = "";
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
	ck_assert_int_eq(write(fds[1], path, sizeof(path)), sizeof(path));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_cuda(cuMemcpyDtoH_v2(&ready, chunk.address, 1));
	ck_assert_int_eq(ready, 0x77);
}
END_TEST

START_TEST(unpinned_memory_is_refused_when_told_so)
{
	static char host[4096];

	setenv("GPUMEM_STANDIN_PAGEABLE", "error", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	CUstream stream = stream_new();
	ck_cuda_is(cuMemcpyHtoDAsync_v2(chunk.address, host, 64, stream), INVALID_VALUE);
	ck_cuda(cuMemcpyHtoD_v2(chunk.address, host,
				64)); /* synchronous: the driver stages the bytes */
	ck_cuda(cuMemHostRegister_v2(host, sizeof(host), CU_MEMHOSTREGISTER_PORTABLE));
	ck_cuda(cuMemcpyHtoDAsync_v2(chunk.address, host, 64, stream));
	ck_cuda(cuStreamSynchronize(stream));
}
END_TEST

START_TEST(a_pin_that_is_not_portable_serves_its_context_only)
{
	static char host[4096];

	setenv("GPUMEM_STANDIN_PAGEABLE", "error", 1);
	use_device(0);
	ck_cuda(cuMemHostRegister_v2(host, sizeof(host), 0));
	use_device(1);
	struct chunk chunk = chunk_new(1, 2 * MIB);
	CUstream stream = stream_new();
	ck_cuda_is(cuMemcpyHtoDAsync_v2(chunk.address, host, 64, stream), INVALID_VALUE);
}
END_TEST

START_TEST(without_peers_only_the_owner_is_let_in)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	int can = 1;

	setenv("GPUMEM_STANDIN_PEER", "0", 1);
	use_device(0);
	ck_cuda(cuDeviceCanAccessPeer(&can, 0, 1));
	ck_assert_int_eq(can, 0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	ck_assert_int_ne(cuMemSetAccess(chunk.address, chunk.size, &access, 1), CUDA_SUCCESS);
}
END_TEST

START_TEST(order_can_be_reversed)
{
	char first[16], second[16];

	setenv("GPUMEM_STANDIN_ORDER", "reverse", 1);
	if (_i)
		setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	ck_cuda(cuInit(0));
	ck_cuda(cuDeviceGetPCIBusId(first, sizeof(first), 0));
	ck_cuda(cuDeviceGetPCIBusId(second, sizeof(second), 1));
	ck_assert_int_eq(strcmp(first, second) < 0, _i);
}
END_TEST

/* Two threads use many streams, for ThreadSanitizer. */
static void *churn(void *argument)
{
	CUcontext context = argument;

	ck_cuda(cuCtxSetCurrent(context));
	for (int round = 0; round < 20; round++) {
		struct chunk chunk = chunk_new(0, 2 * MIB);
		CUstream stream = stream_new();
		uint8_t *host = pinned_new(8192, round);

		ck_cuda(cuMemcpyHtoDAsync_v2(chunk.address, host, 4096, stream));
		ck_cuda(cuMemcpyDtoHAsync_v2(host + 4096, chunk.address, 4096, stream));
		ck_cuda(cuStreamSynchronize(stream));
		ck_assert_int_eq(host[8191], round);
		ck_cuda(cuStreamDestroy_v2(stream));
		pinned_free(host, 8192);
		chunk_free(&chunk);
	}
	return NULL;
}

START_TEST(threads_do_not_disturb_each_other)
{
	pthread_t threads[4];
	CUcontext context = use_device(0);

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, churn, context);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_cuda(cuCtxSetCurrent(NULL));
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
}
END_TEST

Suite *driver_suite(void)
{
	Suite *suite = suite_create("libcuda");
	TCase *tc = tcase_create("driver");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, new_memory_is_not_zero);
	tcase_add_test(tc, bytes_survive_the_round_trip);
	tcase_add_test(tc, copies_are_late);
	tcase_add_test(tc, filling_without_a_stream_does_not_wait);
	tcase_add_test(tc, events_order_streams);
	tcase_add_test(tc, words_order_streams);
	tcase_add_test(tc, blocking_streams_are_ordered_with_the_contexts_own);
	tcase_add_test(tc, a_primary_context_is_made_anew);
	tcase_add_test(tc, a_destroyed_stream_finishes_its_work);
	tcase_add_test(tc, unknown_handles_are_refused);
	tcase_add_test(tc, memory_is_accounted);
	tcase_add_test(tc, wanted_addresses);
	tcase_add_test(tc, another_process_imports);
	tcase_add_test(tc, unpinned_memory_is_refused_when_told_so);
	tcase_add_test(tc, a_pin_that_is_not_portable_serves_its_context_only);
	tcase_add_test(tc, without_peers_only_the_owner_is_let_in);
	tcase_add_loop_test(tc, order_can_be_reversed, 0, 2);
	tcase_add_test(tc, threads_do_not_disturb_each_other);
	suite_add_tcase(suite, tc);
	return suite;
}
