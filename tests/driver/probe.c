/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Calls a CUDA driver with mistakes and unusual arguments, and prints a line for each answer.
 * probe.txt holds the answers of a real driver (580.159, on H100 and H200). Where the stand-in is
 * stricter on purpose, the stand-in's answer follows after a bar. Each group of calls runs in its
 * own process, because a few answers end the context. */
#include "tests/driver/probe.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *name_of(CUresult result)
{
	const char *name = NULL;

	if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		return "no such error";
	return result == CUDA_SUCCESS ? "ok" : name + strlen("CUDA_ERROR_");
}

void say(const char *question, CUresult result)
{
	printf("%-52s %s\n", question, name_of(result));
	fflush(stdout);
}

void say_text(const char *question, const char *answer)
{
	printf("%-52s %s\n", question, answer);
	fflush(stdout);
}

CUcontext context;

void need(CUresult result)
{
	if (result != CUDA_SUCCESS) {
		printf("!! preparation failed: %s\n", name_of(result));
		fflush(stdout);
		_exit(1);
	}
}

void use_context(int device)
{
	need(cuInit(0));
	need(cuDevicePrimaryCtxRetain(&context, device));
	need(cuCtxSetCurrent(context));
}

CUmemAllocationProp prop_of(int device)
{
	return (CUmemAllocationProp){
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
	};
}

CUmemGenericAllocationHandle create(int device, size_t size)
{
	CUmemAllocationProp prop = prop_of(device);
	CUmemGenericAllocationHandle handle;

	need(cuMemCreate(&handle, size, &prop, 0));
	return handle;
}

CUdeviceptr reserve(size_t size)
{
	CUdeviceptr address;

	need(cuMemAddressReserve(&address, size, 0, 0, 0));
	return address;
}

CUresult allow(CUdeviceptr address, size_t size, int device, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};

	return cuMemSetAccess(address, size, &access, 1);
}

CUdeviceptr chunk(int device, size_t size)
{
	CUdeviceptr address = reserve(size);

	need(cuMemMap(address, size, 0, create(device, size), 0));
	need(allow(address, size, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	return address;
}

static const struct {
	const char *name;
	void (*ask)(void);
} groups[] = {
    {"before_init", before_init},
    {"after_fork", after_fork},
    {"without_context", without_context},
    {"without_context_others", without_context_others},
    {"creation", creation},
    {"reservation", reservation},
    {"mapping", mapping},
    {"mapping_many", mapping_many},
    {"release_twice", release_twice},
    {"no_access_copy", no_access_copy},
    {"no_access_set", no_access_set},
    {"partly_mapped", partly_mapped},
    {"read_only", read_only},
    {"copies", copies},
    {"touch_device_memory", touch_device_memory},
    {"pinning", pinning},
    {"pinning_in_part", pinning_in_part},
    {"contexts", contexts},
    {"streams", streams},
    {"sharing", sharing},
    {"old_allocations", old_allocations},
    {"in_flight_unmap", in_flight_unmap},
    {"in_flight_unpin", in_flight_unpin},
    {"in_flight_destroy", in_flight_destroy},
    {"after_failure", after_failure},
    {"after_failure_others", after_failure_others},
    {"free_mapping", free_mapping},
    {"access_twice", access_twice},
    {"dmabuf", dmabuf},
    {"two_gpus", two_gpus},
    {"two_gpus_set", two_gpus_set},
    {"two_gpus_pin", two_gpus_pin},
    {"host_creation", host_creation},
    {"host_access", host_access},
    {"host_copies", host_copies},
    {"host_sharing", host_sharing},
    {"host_pointers", host_pointers},
    {"checkpoint_states", checkpoint_states},
    {"checkpoint_memory", checkpoint_memory},
    {"checkpoint_released", checkpoint_released},
    {"checkpoint_host", checkpoint_host},
    {"checkpoint_handle", checkpoint_handle},
    {"checkpoint_import", checkpoint_import},
    {"checkpoint_host_import", checkpoint_host_import},
};

static void run(unsigned i)
{
	pid_t child;
	int status;

	printf("== %s\n", groups[i].name);
	fflush(stdout);
	child = fork();
	if (!child) {
		groups[i].ask();
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		printf("ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

int main(void)
{
	for (unsigned i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		run(i);
	return 0;
}
