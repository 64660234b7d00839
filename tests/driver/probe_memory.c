/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Probe calls about initialisation, memory, addresses and sharing. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver/probe.h"

void before_init(void)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle handle;
	CUcontext current;
	int n;

	say("before cuInit: cuDeviceGetCount", cuDeviceGetCount(&n));
	say("before cuInit: cuMemCreate", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	say("before cuInit: cuCtxGetCurrent", cuCtxGetCurrent(&current));
	say("before cuInit: cuDriverGetVersion", cuDriverGetVersion(&n));
	say("cuInit(1)", cuInit(1));
	say("cuInit", cuInit(0));
	say("cuInit again", cuInit(0));
}

void after_fork(void)
{
	CUdevice device;
	int n, status;

	need(cuInit(0));
	if (!fork()) {
		say("forked child: cuDeviceGetCount", cuDeviceGetCount(&n));
		say("forked child: cuInit", cuInit(0));
		say("forked child: cuDeviceGet", cuDeviceGet(&device, 0));
		say("forked child: cuDriverGetVersion", cuDriverGetVersion(&n));
		_exit(0);
	}
	wait(&status);
}

void without_context(void)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle handle, imported;
	CUdeviceptr address = 0;
	size_t a, b;
	unsigned flags;
	int fd = -1, active;

	need(cuInit(0));
	say("no context: cuMemCreate", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	say("no context: cuMemAddressReserve", cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
	say("no context: cuMemMap", cuMemMap(address, 2 * MIB, 0, handle, 0));
	say("no context: cuMemSetAccess",
	    allow(address, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say("no context: cuMemExportToShareableHandle",
	    cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	say("no context: cuMemImportFromShareableHandle",
	    cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
					   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	say("no context: cuMemRetainAllocationHandle",
	    cuMemRetainAllocationHandle(&imported, (void *)(uintptr_t)address));
	need(cuDevicePrimaryCtxGetState(0, &flags, &active));
	say_text("no context: is the primary one active by now", active ? "yes" : "no");
	say("no context: cuMemGetInfo", cuMemGetInfo_v2(&a, &b));
	say("no context: cuMemsetD8", cuMemsetD8_v2(address, 0, 64));
	say("no context: cuMemUnmap", cuMemUnmap(address, 2 * MIB));
	say("no context: cuMemRelease", cuMemRelease(handle));
	say("no context: cuMemAddressFree", cuMemAddressFree(address, 2 * MIB));
}

void without_context_others(void)
{
	static char host[8192];
	CUstream stream;
	CUevent event;
	CUcontext popped;
	void *allocated;

	need(cuInit(0));
	say("no context: cuStreamCreate", cuStreamCreate(&stream, 0));
	say("no context: cuEventCreate", cuEventCreate(&event, 0));
	say("no context: cuMemHostRegister", cuMemHostRegister_v2(host, sizeof(host), 1));
	say("no context: cuMemHostAlloc", cuMemHostAlloc(&allocated, 4096, 1));
	say("no context: cuCtxSynchronize", cuCtxSynchronize());
	say("no context: cuStreamSynchronize(NULL)", cuStreamSynchronize(NULL));
	say("no context: cuCtxSetCurrent(NULL)", cuCtxSetCurrent(NULL));
	say("no context: cuCtxPopCurrent", cuCtxPopCurrent_v2(&popped));
}

void creation(void)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle handle;
	size_t granularity = 0;

	need(cuInit(0));
	say("granularity", cuMemGetAllocationGranularity(&granularity, &prop, 0));
	say_text("granularity is 2 MiB", granularity == 2 * MIB ? "yes" : "no");
	say("create: no bytes", cuMemCreate(&handle, 0, &prop, 0));
	say("create: 1 MiB", cuMemCreate(&handle, 1 * MIB, &prop, 0));
	say("create: 3 MiB", cuMemCreate(&handle, 3 * MIB, &prop, 0));
	say("create: flags", cuMemCreate(&handle, 2 * MIB, &prop, 1));
	say("create: no prop", cuMemCreate(&handle, 2 * MIB, NULL, 0));
	say("create: 16 TiB", cuMemCreate(&handle, 16ULL << 40, &prop, 0));
	prop.location.id = 99;
	say("create: device 99", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	prop = prop_of(0);
	prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
	say("create: type 0", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	prop = prop_of(0);
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
	say("create: fabric handle", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	prop.requestedHandleTypes = 2;
	say("create: Windows handle", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	say("create: no handle type", cuMemCreate(&handle, 2 * MIB, &prop, 0));
}

void reservation(void)
{
	CUdeviceptr address;

	need(cuInit(0));
	say("reserve: 1 MiB", cuMemAddressReserve(&address, 1 * MIB, 0, 0, 0));
	say("reserve: no bytes", cuMemAddressReserve(&address, 0, 0, 0, 0));
	say("reserve: alignment 3", cuMemAddressReserve(&address, 2 * MIB, 3, 0, 0));
	say("reserve: alignment 4 KiB", cuMemAddressReserve(&address, 2 * MIB, 4096, 0, 0));
	say("reserve: flags", cuMemAddressReserve(&address, 2 * MIB, 0, 0, 1));
	say("reserve: alignment 1 GiB", cuMemAddressReserve(&address, 2 * MIB, 1024 * MIB, 0, 0));
	say_text("reserve: is aligned", address % (1024 * MIB) ? "no" : "yes");
	say("reserve: 64 GiB", cuMemAddressReserve(&address, 64ULL << 30, 0, 0, 0));
	say("free address: wrong size", cuMemAddressFree(address, 2 * MIB));
	say("free address: in the middle", cuMemAddressFree(address + 2 * MIB, 2 * MIB));
	say("free address", cuMemAddressFree(address, 64ULL << 30));
	say("free address again", cuMemAddressFree(address, 64ULL << 30));
	address = reserve(2 * MIB);
	need(cuMemMap(address, 2 * MIB, 0, create(0, 2 * MIB), 0));
	say("free address: still mapped", cuMemAddressFree(address, 2 * MIB));
}

void mapping(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;

	use_context(0);
	handle = create(0, 4 * MIB);
	address = reserve(32 * MIB);
	say("map: offset", cuMemMap(address, 2 * MIB, 2 * MIB, handle, 0));
	say("map: the first half", cuMemMap(address, 2 * MIB, 0, handle, 0));
	say("map: more than there is", cuMemMap(address + 8 * MIB, 8 * MIB, 0, handle, 0));
	say("map: unaligned", cuMemMap(address + 8 * MIB + 4096, 4 * MIB, 0, handle, 0));
	say("map: flags", cuMemMap(address + 8 * MIB, 4 * MIB, 0, handle, 1));
	say("map: past the reservation", cuMemMap(address + 30 * MIB, 4 * MIB, 0, handle, 0));
	say("map: not reserved", cuMemMap(address + 512 * MIB, 4 * MIB, 0, handle, 0));
	say("map", cuMemMap(address + 8 * MIB, 4 * MIB, 0, handle, 0));
	say("map: over a mapping", cuMemMap(address + 10 * MIB, 4 * MIB, 0, handle, 0));
	say("map: same memory elsewhere", cuMemMap(address + 16 * MIB, 4 * MIB, 0, handle, 0));
	say("access: half a mapping",
	    allow(address + 8 * MIB, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say("access: with a gap",
	    allow(address + 8 * MIB, 12 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say("access: device 99",
	    allow(address + 8 * MIB, 4 * MIB, 99, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say("access: flags 2", allow(address + 8 * MIB, 4 * MIB, 0, 2));
	say("access: none listed", cuMemSetAccess(address + 8 * MIB, 4 * MIB, NULL, 0));
	say("unmap: half a mapping", cuMemUnmap(address + 8 * MIB, 2 * MIB));
	say("unmap: nothing there", cuMemUnmap(address + 24 * MIB, 4 * MIB));
	say("unmap: with a gap", cuMemUnmap(address + 8 * MIB, 12 * MIB));
}

void mapping_many(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;

	use_context(0);
	address = reserve(16 * MIB);
	need(cuMemMap(address, 2 * MIB, 0, create(0, 2 * MIB), 0));
	need(cuMemMap(address + 2 * MIB, 2 * MIB, 0, create(0, 2 * MIB), 0));
	say("access: two mappings", allow(address, 4 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say("copy across two mappings", cuMemsetD8_v2(address + MIB, 7, 2 * MIB));
	say("synchronize", cuCtxSynchronize());
	say("unmap: two mappings", cuMemUnmap(address, 4 * MIB));
	say("unmap: again", cuMemUnmap(address, 4 * MIB));
	handle = create(0, 2 * MIB);
	need(cuMemMap(address, 2 * MIB, 0, handle, 0));
	say("release while mapped", cuMemRelease(handle));
	say("access after release", allow(address, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say("use after release", cuMemsetD8_v2(address, 1, 2 * MIB));
	say("synchronize", cuCtxSynchronize());
	say("unmap after release", cuMemUnmap(address, 2 * MIB));
}

void release_twice(void)
{
	CUmemGenericAllocationHandle handle;

	need(cuInit(0));
	handle = create(0, 2 * MIB);
	say("release", cuMemRelease(handle));
	say("release twice", cuMemRelease(handle));
}

void sharing(void)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle handle, imported, private;
	CUdeviceptr address;
	int fd, again, null = open("/dev/null", O_RDWR);

	use_context(0);
	handle = create(0, 2 * MIB);
	say("export", cuMemExportToShareableHandle(&fd, handle, 1, 0));
	say("export twice", cuMemExportToShareableHandle(&again, handle, 1, 0));
	say("export: flags", cuMemExportToShareableHandle(&again, handle, 1, 1));
	say("export: type 0", cuMemExportToShareableHandle(&again, handle, 0, 0));
	say_text("fd: mmap works",
		 mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? "no" : "yes");
	say_text("fd: close on exec", fcntl(fd, F_GETFD) & FD_CLOEXEC ? "yes" : "no");
	say("import", cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
	say_text("import: a handle of its own", imported == handle ? "no" : "yes");
	say("import, then export", cuMemExportToShareableHandle(&again, imported, 1, 0));
	say("import: /dev/null",
	    cuMemImportFromShareableHandle(&private, (void *)(intptr_t)null, 1));
	say("import: fd 999", cuMemImportFromShareableHandle(&private, (void *)999, 1));
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	need(cuMemCreate(&private, 2 * MIB, &prop, 0));
	say("export: created without a handle type",
	    cuMemExportToShareableHandle(&again, private, 1, 0));
	address = reserve(2 * MIB);
	say("map what was imported", cuMemMap(address, 2 * MIB, 0, imported, 0));
	say("retain by address",
	    cuMemRetainAllocationHandle(&private, (void *)(uintptr_t)address + MIB));
	say_text("retain: which handle", private == imported ? "the imported"
					 : private == handle ? "the created"
							     : "another");
	say("release what was retained", cuMemRelease(private));
	say("release the import", cuMemRelease(imported));
	say("release the import again", cuMemRelease(imported));
}

void old_allocations(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr old, none;

	use_context(0);
	need(cuMemAlloc_v2(&old, 2 * MIB));
	say("cuMemAlloc: no bytes", cuMemAlloc_v2(&none, 0));
	say("cuMemUnmap of an allocation", cuMemUnmap(old, 2 * MIB));
	say("retain an allocation by address",
	    cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)old));
	say("cuMemFree in the middle", cuMemFree_v2(old + 4096));
	say("cuMemFree", cuMemFree_v2(old));
	say("cuMemFree again", cuMemFree_v2(old));
	say("cuMemFree(0)", cuMemFree_v2(0));
}

void free_mapping(void)
{
	CUdeviceptr address;

	use_context(0);
	address = chunk(0, 2 * MIB);
	say("cuMemFree of a mapping", cuMemFree_v2(address));
	say("then: cuMemsetD8", cuMemsetD8_v2(address, 1, 64));
	say("then: cuMemUnmap", cuMemUnmap(address, 2 * MIB));
}

void dmabuf(void)
{
	CUdeviceptr address;
	int fd = -1;

	use_context(0);
	address = chunk(0, 4 * MIB);
	say("dma-buf: flags 2", cuMemGetHandleForAddressRange(&fd, address, 4 * MIB, 1, 2));
	say("dma-buf: unaligned", cuMemGetHandleForAddressRange(&fd, address + 64, 4096, 1, 0));
	say("dma-buf: type 2", cuMemGetHandleForAddressRange(&fd, address, 4 * MIB, 2, 0));
	say("dma-buf: force PCIe", cuMemGetHandleForAddressRange(&fd, address, 4 * MIB, 1, 1));
}
