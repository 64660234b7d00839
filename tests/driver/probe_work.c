/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Probe calls about copies, pinning, contexts, streams and failure. */
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#include "tests/driver/probe.h"

void no_access_copy(void)
{
	static char host[4096];
	CUdeviceptr address;

	use_context(0);
	address = reserve(2 * MIB);
	need(cuMemMap(address, 2 * MIB, 0, create(0, 2 * MIB), 0));
	say("no access: cuMemcpyHtoD", cuMemcpyHtoD_v2(address, host, 64));
	say("no access: cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2(address, host, 64, NULL));
	say("no access: cuMemcpyDtoH", cuMemcpyDtoH_v2(host, address, 64));
	say("synchronize", cuCtxSynchronize());
}

void no_access_set(void)
{
	CUdeviceptr address;

	use_context(0);
	address = reserve(4 * MIB);
	need(cuMemMap(address, 2 * MIB, 0, create(0, 2 * MIB), 0));
	say("no access: cuMemsetD8", cuMemsetD8_v2(address, 0, 64));
	say("synchronize", cuCtxSynchronize());
	say("not mapped: cuMemsetD8", cuMemsetD8_v2(address + 2 * MIB, 0, 64));
	say("synchronize", cuCtxSynchronize());
}

void partly_mapped(void)
{
	CUdeviceptr address;

	use_context(0);
	address = reserve(4 * MIB);
	need(cuMemMap(address, 2 * MIB, 0, create(0, 2 * MIB), 0));
	need(allow(address, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say("half mapped: cuMemsetD8", cuMemsetD8_v2(address, 0, 4 * MIB));
	say("synchronize", cuCtxSynchronize());
}

void read_only(void)
{
	static char host[4096];
	CUdeviceptr address;

	use_context(0);
	address = reserve(2 * MIB);
	need(cuMemMap(address, 2 * MIB, 0, create(0, 2 * MIB), 0));
	say("access: read only", allow(address, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
	say("read only: cuMemcpyDtoH", cuMemcpyDtoH_v2(host, address, 64));
	say("read only: cuMemcpyHtoD", cuMemcpyHtoD_v2(address, host, 64));
	say("synchronize", cuCtxSynchronize());
}

void copies(void)
{
	static char host[8192];
	CUdeviceptr address;

	use_context(0);
	address = chunk(0, 4 * MIB);
	say("copy: no bytes", cuMemcpyHtoD_v2(address, host, 0));
	say("copy: from NULL", cuMemcpyHtoD_v2(address, NULL, 64));
	say("copy: HtoD, to host memory", cuMemcpyHtoD_v2((uintptr_t)host, host + 4096, 64));
	say("copy: HtoD, from device memory",
	    cuMemcpyHtoD_v2(address, (void *)(uintptr_t)(address + MIB), 64));
	say("copy: DtoH, to device memory",
	    cuMemcpyDtoH_v2((void *)(uintptr_t)address, address + MIB, 64));
	say("copy: DtoD, overlapping", cuMemcpyDtoD_v2(address, address + 64, MIB));
	say("copy: DtoD, the same", cuMemcpyDtoD_v2(address, address, MIB));
	say("copy: HtoDAsync, pageable", cuMemcpyHtoDAsync_v2(address, host, 64, NULL));
	say("copy: cuMemcpyAsync, host to host",
	    cuMemcpyAsync((uintptr_t)host, (uintptr_t)host + 4096, 64, NULL));
	say("synchronize", cuCtxSynchronize());
	say("copy: past the end", cuMemcpyDtoH_v2(host, address + 4 * MIB - 64, 128));
	say("synchronize", cuCtxSynchronize());
}

void touch_device_memory(void)
{
	CUdeviceptr address;

	use_context(0);
	address = chunk(0, 2 * MIB);
	signal(SIGSEGV, SIG_DFL); /* the sanitizers install their own handler */
	printf("%-52s %d\n", "load through a device address",
	       *(volatile char *)(uintptr_t)address ? 1 : 0);
}

void pinning(void)
{
	char *host =
	    mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *gone = mmap(NULL, 64 << 10, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *allocated;

	use_context(0);
	munmap(gone, 64 << 10);
	say("pin: no bytes", cuMemHostRegister_v2(host, 0, 1));
	say("pin: NULL", cuMemHostRegister_v2(NULL, 4096, 1));
	say("pin: flags 16", cuMemHostRegister_v2(host, 4096, 16));
	say("pin: not mapped", cuMemHostRegister_v2(gone, 4096, 1));
	say("pin: unaligned", cuMemHostRegister_v2(host + 100, 5000, 1));
	say("unpin: unaligned", cuMemHostUnregister(host + 100));
	say("pin", cuMemHostRegister_v2(host, 16 << 10, 1));
	say("pin: again", cuMemHostRegister_v2(host, 16 << 10, 1));
	say("pin: inside", cuMemHostRegister_v2(host + 4096, 4096, 1));
	say("pin: overlapping", cuMemHostRegister_v2(host + (8 << 10), 16 << 10, 1));
	say("unpin: in the middle", cuMemHostUnregister(host + 4096));
	say("free pinned as allocated", cuMemFreeHost(host));
	say("unpin", cuMemHostUnregister(host));
	say("unpin: again", cuMemHostUnregister(host));
	say("host alloc", cuMemHostAlloc(&allocated, 100, 1));
	say("unpin what was allocated", cuMemHostUnregister(allocated));
	say("free host", cuMemFreeHost(allocated));
	say("free host again", cuMemFreeHost(allocated));
	say("host alloc: no bytes", cuMemHostAlloc(&allocated, 0, 1));
	say("pin: a device address",
	    cuMemHostRegister_v2((void *)(uintptr_t)chunk(0, 2 * MIB), 4096, 1));
}

void pinning_in_part(void)
{
	char *host =
	    mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *constant = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr address;

	use_context(0);
	address = chunk(0, 2 * MIB);
	say("pin: read-only memory", cuMemHostRegister_v2(constant, 8192, 1));
	say("pin: 100 bytes", cuMemHostRegister_v2(host, 100, 1));
	say("pin: another 100 in the same page", cuMemHostRegister_v2(host + 200, 100, 1));
	say("pinned in part: cuMemcpyHtoD", cuMemcpyHtoD_v2(address, host, 16 << 10));
	say("pinned in part: cuMemcpyHtoDAsync",
	    cuMemcpyHtoDAsync_v2(address, host, 16 << 10, NULL));
	say("pinned in part: cuMemcpyDtoHAsync",
	    cuMemcpyDtoHAsync_v2(host, address, 16 << 10, NULL));
	say("pinned in part: the rest of its page",
	    cuMemcpyHtoDAsync_v2(address, host + 2048, 1024, NULL));
	say("synchronize", cuCtxSynchronize());
}

void contexts(void)
{
	CUcontext again, current = NULL;
	size_t a, b;

	need(cuInit(0));
	say("release a primary context nobody has", cuDevicePrimaryCtxRelease_v2(0));
	use_context(0);
	need(cuDevicePrimaryCtxRetain(&again, 0));
	say_text("retained twice: the same", again == context ? "yes" : "no");
	say("set flags while active", cuDevicePrimaryCtxSetFlags_v2(0, 4));
	need(cuDevicePrimaryCtxRelease_v2(0));
	say("release primary", cuDevicePrimaryCtxRelease_v2(0));
	say("current is gone: cuMemGetInfo", cuMemGetInfo_v2(&a, &b));
	say("current is gone: cuCtxGetCurrent", cuCtxGetCurrent(&current));
	say("set a context that is gone", cuCtxSetCurrent(context));
	say("set no context", cuCtxSetCurrent(NULL));
	say("release primary too often", cuDevicePrimaryCtxRelease_v2(0));
	say("retain device 99", cuDevicePrimaryCtxRetain(&context, 99));
}

void streams(void)
{
	CUstream stream;
	CUevent event;

	use_context(0);
	say("stream: flags 2", cuStreamCreate(&stream, 2));
	say("stream", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	say("event: flags 8", cuEventCreate(&event, 8));
	say("event", cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	say("event never recorded: query", cuEventQuery(event));
	say("event never recorded: wait", cuEventSynchronize(event));
	say("event never recorded: stream waits", cuStreamWaitEvent(stream, event, 0));
	need(cuStreamSynchronize(stream));
	say("stream: query", cuStreamQuery(stream));
	say("record", cuEventRecord(event, stream));
	say("synchronize", cuEventSynchronize(event));
	say("destroy event", cuEventDestroy_v2(event));
	say("destroy stream", cuStreamDestroy_v2(stream));
	say("destroy stream NULL", cuStreamDestroy_v2(NULL));
}

/* Unmaps memory while work on the memory is queued. */
void in_flight_unmap(void)
{
	CUdeviceptr address;
	CUstream stream;

	use_context(0);
	need(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	address = chunk(0, 64 * MIB);
	for (int i = 0; i < 200; i++)
		need(cuMemsetD8Async(address, (unsigned char)i, 64 * MIB, stream));
	say_text("in flight: is the work still running",
		 cuStreamQuery(stream) == CUDA_ERROR_NOT_READY ? "yes" : "no");
	say("in flight: unmap", cuMemUnmap(address, 64 * MIB));
	say("in flight: synchronize", cuStreamSynchronize(stream));
}

void in_flight_unpin(void)
{
	size_t size = 64 * MIB;
	char *host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr address;
	CUstream stream;

	use_context(0);
	need(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	need(cuMemHostRegister_v2(host, size, 1));
	address = chunk(0, size);
	for (int i = 0; i < 20; i++)
		need(cuMemcpyDtoHAsync_v2(host, address, size, stream));
	say("in flight: unpin", cuMemHostUnregister(host));
	say_text("in flight: after unpin, is it still running",
		 cuStreamQuery(stream) == CUDA_ERROR_NOT_READY ? "yes" : "no");
	say("in flight: synchronize", cuStreamSynchronize(stream));
}

void in_flight_destroy(void)
{
	CUdeviceptr address;
	CUstream stream;

	use_context(0);
	need(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	address = chunk(0, 64 * MIB);
	for (int i = 0; i < 20; i++)
		need(cuMemsetD8Async(address, (unsigned char)i, 64 * MIB, stream));
	say("in flight: destroy the stream", cuStreamDestroy_v2(stream));
	say("synchronize", cuCtxSynchronize());
}

/* Makes device 0 fail by an unmapped range, the only failure without a hardware fault. */
static void fail(CUstream stream)
{
	CUdeviceptr address = chunk(0, 64 * MIB);

	for (int i = 0; i < 200; i++)
		need(cuMemsetD8Async(address, 1, 64 * MIB, stream));
	need(cuMemUnmap(address, 64 * MIB));
	say("failing", cuStreamSynchronize(stream));
}

void after_failure(void)
{
	static char pinned[8192] __attribute__((aligned(4096)));
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle handle = 0, mapped;
	CUdeviceptr address;
	CUstream stream;
	CUevent event;
	size_t a, b;
	int n, fd;

	use_context(0);
	need(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	need(cuMemHostRegister_v2(pinned, sizeof(pinned), 1));
	mapped = create(0, 2 * MIB);
	address = reserve(4 * MIB);
	need(cuMemMap(address, 2 * MIB, 0, mapped, 0));
	fail(stream);
	say("failed: cuDeviceGetCount", cuDeviceGetCount(&n));
	say("failed: cuMemGetInfo", cuMemGetInfo_v2(&a, &b));
	say("failed: cuMemcpyHtoD", cuMemcpyHtoD_v2(address, pinned, 64));
	say("failed: cuStreamQuery", cuStreamQuery(stream));
	say("failed: cuEventCreate", cuEventCreate(&event, 0));
	say("failed: cuMemCreate", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	say("failed: cuMemMap", cuMemMap(address + 2 * MIB, 2 * MIB, 0, mapped, 0));
	say("failed: cuMemSetAccess",
	    allow(address, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say("failed: cuMemExportToShareableHandle",
	    cuMemExportToShareableHandle(&fd, mapped, 1, 0));
	say("failed: cuMemHostUnregister", cuMemHostUnregister(pinned));
	say("failed: cuStreamDestroy", cuStreamDestroy_v2(stream));
	say("failed: cuMemUnmap", cuMemUnmap(address, 2 * MIB));
	say("failed: cuMemRelease", cuMemRelease(mapped));
	say("failed: cuCtxSetCurrent", cuCtxSetCurrent(context));
	say("failed: cuCtxSynchronize", cuCtxSynchronize());
	say("failed: cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2(0));
}

void after_failure_others(void)
{
	static char host[64];
	CUdeviceptr second;
	CUcontext other;
	CUstream stream;
	size_t a, b;

	use_context(0);
	second = chunk(1, 2 * MIB);
	need(cuDevicePrimaryCtxRetain(&other, 1));
	need(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	fail(stream);
	say("failed, other: cuCtxSetCurrent", cuCtxSetCurrent(other));
	say("failed, other: cuMemGetInfo", cuMemGetInfo_v2(&a, &b));
	say("failed, other: cuMemcpyHtoD", cuMemcpyHtoD_v2(second, host, 64));
	say("failed, other: cuMemUnmap", cuMemUnmap(second, 2 * MIB));
	say("failed, other: cuCtxSynchronize", cuCtxSynchronize());
}

void access_twice(void)
{
	CUdeviceptr address;

	use_context(0);
	address = chunk(0, 2 * MIB);
	say("access: given again", allow(address, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say("access: taken away", allow(address, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	say("access taken away: cuMemsetD8", cuMemsetD8_v2(address, 1, 64));
	say("synchronize", cuCtxSynchronize());
}

void two_gpus(void)
{
	static char host[4096];
	CUdeviceptr first, second;
	CUcontext other;
	CUstream stream;
	CUevent event;

	use_context(0);
	first = chunk(0, 2 * MIB);
	second = chunk(1, 2 * MIB);
	need(cuDevicePrimaryCtxRetain(&other, 1));
	need(cuCtxSetCurrent(other));
	need(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	need(cuCtxSetCurrent(context));
	need(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	say("2 GPUs: record an event on the other's stream", cuEventRecord(event, stream));
	say("2 GPUs: wait for an event of the other", cuStreamWaitEvent(stream, event, 0));
	say("2 GPUs: copy, owners have access", cuMemcpyDtoD_v2(first, second, 4096));
	say("2 GPUs: synchronize", cuCtxSynchronize());
	say("2 GPUs: to the other's memory", cuMemcpyHtoD_v2(second, host, 64));
	say("2 GPUs: from the other's memory", cuMemcpyDtoH_v2(host, second, 64));
	say("2 GPUs: the other's stream, our memory",
	    cuMemcpyHtoDAsync_v2(first, host, 64, stream));
	say("2 GPUs: synchronize", cuStreamSynchronize(stream));
	say("2 GPUs: let the other in",
	    allow(second, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say("2 GPUs: set memory of the other, let in", cuMemsetD8_v2(second, 1, 4096));
	say("2 GPUs: synchronize", cuCtxSynchronize());
}

void two_gpus_set(void)
{
	CUdeviceptr second;

	use_context(0);
	second = chunk(1, 2 * MIB);
	say("2 GPUs: set memory of the other, not let in", cuMemsetD8_v2(second, 1, 4096));
	say("2 GPUs: synchronize", cuCtxSynchronize());
}

void two_gpus_pin(void)
{
	static char host[1 << 16] __attribute__((aligned(4096)));
	CUcontext other;

	use_context(0);
	need(cuDevicePrimaryCtxRetain(&other, 1));
	say("2 GPUs: pin, not portable", cuMemHostRegister_v2(host, sizeof(host), 0));
	need(cuCtxSetCurrent(other));
	say("2 GPUs: pin for the other too", cuMemHostRegister_v2(host, sizeof(host), 0));
	say("2 GPUs: unpin by the other", cuMemHostUnregister(host));
}
