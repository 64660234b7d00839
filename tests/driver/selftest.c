/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests of the stand-ins themselves. */
#include "tests/driver/selftest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

CUcontext use_device(int device)
{
	CUcontext context;

	ck_cuda(cuInit(0));
	ck_cuda(cuDevicePrimaryCtxRetain(&context, device));
	ck_cuda(cuCtxSetCurrent(context));
	return context;
}

CUmemAllocationProp prop_of(int device)
{
	return (CUmemAllocationProp){
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
	    .allocFlags.gpuDirectRDMACapable = 1,
	};
}

CUmemAllocationProp host_prop(void)
{
	return (CUmemAllocationProp){
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
	};
}

CUresult access_set(const struct chunk *chunk, CUmemLocationType type, int id,
		    CUmemAccess_flags flags)
{
	CUmemAccessDesc access = {{type, id}, flags};

	return cuMemSetAccess(chunk->address, chunk->size, &access, 1);
}

void chunk_map(struct chunk *chunk, int device)
{
	ck_cuda(cuMemAddressReserve(&chunk->address, chunk->size, 0, 0, 0));
	ck_cuda(cuMemMap(chunk->address, chunk->size, 0, chunk->handle, 0));
	ck_cuda(access_set(chunk, CU_MEM_LOCATION_TYPE_DEVICE, device,
			   CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

struct chunk chunk_new(int device, size_t size)
{
	CUmemAllocationProp prop = prop_of(device);
	struct chunk chunk = {.size = size};

	ck_cuda(cuMemCreate(&chunk.handle, size, &prop, 0));
	chunk_map(&chunk, device);
	return chunk;
}

void chunk_free(struct chunk *chunk)
{
	ck_cuda(cuMemUnmap(chunk->address, chunk->size));
	ck_cuda(cuMemAddressFree(chunk->address, chunk->size));
	ck_cuda(cuMemRelease(chunk->handle));
}

void *pinned_new(size_t size, int fill)
{
	void *host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(host, MAP_FAILED);
	memset(host, fill, size);
	ck_cuda(cuMemHostRegister_v2(host, size, CU_MEMHOSTREGISTER_PORTABLE));
	return host;
}

void pinned_free(void *host, size_t size)
{
	ck_cuda(cuMemHostUnregister(host));
	munmap(host, size);
}

int export_fd(const struct chunk *chunk)
{
	int fd;

	ck_cuda(cuMemExportToShareableHandle(&fd, chunk->handle, 1, 0));
	return fd;
}

void leak_line(void (*body)(void), char *line, size_t size)
{
	char path[] = "/tmp/standin-leaks-XXXXXX";
	int fd = mkstemp(path), status;
	ssize_t length;

	ck_assert_int_ge(fd, 0);
	pid_t child = fork();
	if (!child) {
		setenv("GPUMEM_STANDIN_LEAKCHECK", path, 1);
		body();
		exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	length = read(fd, line, size - 1);
	ck_assert_int_gt(length, 0);
	line[length] = '\0';
	unlink(path);
	close(fd);
}

int main(void)
{
	SRunner *runner = srunner_create(driver_suite());
	int failed;

	srunner_add_suite(runner, faults_suite());
	srunner_add_suite(runner, others_suite());
	srunner_add_suite(runner, kernel_suite());
	srunner_add_suite(runner, host_suite());
	srunner_add_suite(runner, checkpoint_suite());
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
