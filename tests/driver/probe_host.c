/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Probe calls about host-located memory. */
#include <string.h>
#include <unistd.h>

#include "tests/driver/probe.h"

static CUmemAllocationProp host_prop(void)
{
	CUmemAllocationProp prop = prop_of(0);

	prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
	return prop;
}

CUmemGenericAllocationHandle host_create(size_t size)
{
	CUmemAllocationProp prop = host_prop();
	CUmemGenericAllocationHandle handle;

	need(cuMemCreate(&handle, size, &prop, 0));
	return handle;
}

static CUresult allow_node(CUdeviceptr address, size_t size, int node, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_HOST_NUMA, node}, flags};

	return cuMemSetAccess(address, size, &access, 1);
}

CUdeviceptr host_chunk(CUmemGenericAllocationHandle handle, size_t size)
{
	CUdeviceptr address = reserve(size);

	need(cuMemMap(address, size, 0, handle, 0));
	need(allow(address, size, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	need(allow_node(address, size, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	return address;
}

char *cpu(CUdeviceptr address)
{
	return (char *)(uintptr_t)address;
}

/* The kernel accesses the addresses for the program: a fault is an error of the system call. */
static void say_cpu(const char *question, CUdeviceptr address)
{
	static const char *const answers[] = {"no", "reads", "writes"};
	int fds[2], can = 0;

	if (pipe(fds) == 0 && write(fds[1], cpu(address), 1) == 1)
		can = read(fds[0], cpu(address), 1) == 1 ? 2 : 1;
	close(fds[0]);
	close(fds[1]);
	say_text(question, answers[can]);
}

void host_creation(void)
{
	CUmemAllocationProp prop = host_prop();
	CUmemGenericAllocationHandle handle;
	size_t granularity = 0;
	int value = -1;

	need(cuInit(0));
	say("host: cuDeviceGetAttribute HOST_NUMA_ID",
	    cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
	say_text("host: node 0 is the closest", value == 0 ? "yes" : "no");
	need(cuDeviceGetAttribute(
	    &value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	say_text("host: memory management is supported", value == 1 ? "yes" : "no");
	say("host: granularity", cuMemGetAllocationGranularity(&granularity, &prop, 0));
	say_text("host: granularity is 2 MiB", granularity == 2 * MIB ? "yes" : "no");
	say("host: create", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	say("host: create 1 MiB", cuMemCreate(&handle, 1 * MIB, &prop, 0));
	prop.location.id = 99;
	say("host: create, node 99", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	prop.location.id = -1;
	say("host: create, node -1", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	prop = host_prop();
	prop.allocFlags.gpuDirectRDMACapable = 1;
	say("host: create, RDMA capable", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	prop = host_prop();
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
	say("host: create, no node, handle type", cuMemCreate(&handle, 2 * MIB, &prop, 0));
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	say("host: create, no node", cuMemCreate(&handle, 2 * MIB, &prop, 0));
}

void host_access(void)
{
	CUmemLocation node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
	unsigned long long flags = 0;
	CUdeviceptr address, device;

	use_context(0);
	address = reserve(4 * MIB);
	say("host: map", cuMemMap(address, 2 * MIB, 0, host_create(2 * MIB), 0));
	say_cpu("host: mapped, the CPU", address);
	say("host: access of device 0", allow(address, 2 * MIB, 0, 3));
	say_cpu("host: access of device 0, the CPU", address);
	say("host: access of node 99", allow_node(address, 2 * MIB, 99, 3));
	say("host: access of node 0, flags 2", allow_node(address, 2 * MIB, 0, 2));
	say("host: access of node 0, read", allow_node(address, 2 * MIB, 0, 1));
	say_cpu("host: access to read, the CPU", address);
	say("host: access of node 0", allow_node(address, 2 * MIB, 0, 3));
	say_cpu("host: access of node 0, the CPU", address);
	say("host: cuMemGetAccess of node 0", cuMemGetAccess(&flags, &node, address));
	say_text("host: cuMemGetAccess says", flags == 3 ? "read and write" : "other");
	say("host: access of node 0, none", allow_node(address, 2 * MIB, 0, 0));
	say_cpu("host: access taken away, the CPU", address);
	say("host: access of node 0 again", allow_node(address, 2 * MIB, 0, 3));
	say("host: unmap", cuMemUnmap(address, 2 * MIB));
	say_cpu("host: unmapped, the CPU", address);
	device = chunk(0, 2 * MIB);
	say("host: access of node 0 to device memory", allow_node(device, 2 * MIB, 0, 3));
	need(cuMemMap(address, 2 * MIB, 0, host_create(2 * MIB), 0));
	need(cuMemMap(address + 2 * MIB, 2 * MIB, 0, create(0, 2 * MIB), 0));
	say("host: access of node 0, both kinds", allow_node(address, 4 * MIB, 0, 3));
	say("host: access of device 0, both kinds", allow(address, 4 * MIB, 0, 3));
}

void host_copies(void)
{
	CUdeviceptr address, device;
	static char out[64];

	use_context(0);
	address = host_chunk(host_create(4 * MIB), 4 * MIB);
	device = chunk(0, 2 * MIB);
	strcpy(cpu(address), "stored by the CPU");
	say("host: cuMemcpyDtoD to the device", cuMemcpyDtoD_v2(device, address, 64));
	say("host: cuMemcpyDtoD from the device", cuMemcpyDtoD_v2(address + MIB, device, 64));
	say("synchronize", cuCtxSynchronize());
	say_text("host: the CPU reads what the device wrote",
		 strcmp(cpu(address + MIB), cpu(address)) == 0 ? "yes" : "no");
	say("host: cuMemcpyDtoH", cuMemcpyDtoH_v2(out, address, 64));
	say("host: cuMemcpyHtoD", cuMemcpyHtoD_v2(address + 2 * MIB, out, 64));
	say("host: cuMemcpyAsync", cuMemcpyAsync(device, address, 64, NULL));
	say("host: cuMemsetD8", cuMemsetD8_v2(address, 1, MIB));
	say("host: cuMemcpyHtoD from the CPU's pointer", cuMemcpyHtoD_v2(device, cpu(address), 64));
	say("host: cuMemcpyHtoDAsync from the CPU's pointer",
	    cuMemcpyHtoDAsync_v2(device, cpu(address), 64, NULL));
	say("host: cuMemcpyDtoHAsync to the CPU's pointer",
	    cuMemcpyDtoHAsync_v2(cpu(address), device, 64, NULL));
	say("synchronize", cuCtxSynchronize());
	say("host: pin", cuMemHostRegister_v2(cpu(address), 4096, 1));
	need(allow(address, 4 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	say("host: CPU only, cuMemcpyHtoD from it", cuMemcpyHtoD_v2(device, cpu(address), 64));
	say("host: CPU only, cuMemcpyDtoH to it", cuMemcpyDtoH_v2(cpu(address), device, 64));
	say("host: CPU only, cuMemcpyDtoD from it", cuMemcpyDtoD_v2(device, address, 64));
	say("synchronize", cuCtxSynchronize());
}

void host_sharing(void)
{
	CUmemGenericAllocationHandle handle, imported;
	CUdeviceptr address, again;
	int fd = -1;

	use_context(0);
	handle = host_create(2 * MIB);
	say("host: export", cuMemExportToShareableHandle(&fd, handle, 1, 0));
	say("host: import", cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
	address = host_chunk(handle, 2 * MIB);
	again = host_chunk(imported, 2 * MIB);
	*cpu(address) = 77;
	say_text("host: the import is the same memory", *cpu(again) == 77 ? "yes" : "no");
	say("host: dma-buf", cuMemGetHandleForAddressRange(&fd, address, 2 * MIB, 1, 0));
}

void host_pointers(void)
{
	CUdeviceptr address, pointer = 0;
	void *host = NULL;
	unsigned type = 0;
	unsigned char rdma = 1;
	int device = 99;

	use_context(0);
	address = host_chunk(host_create(2 * MIB), 2 * MIB);
	say("host: memory type", cuPointerGetAttribute(&type, 2, address));
	say_text("host: memory type is", type == CU_MEMORYTYPE_HOST ? "host" : "device");
	say("host: device ordinal", cuPointerGetAttribute(&device, 9, address));
	say_text("host: device ordinal is", device == -1 ? "-1" : device == 0 ? "0" : "another");
	say("host: host pointer", cuPointerGetAttribute(&host, 4, address));
	say_text("host: host pointer is the address", host == cpu(address) ? "yes" : "no");
	say("host: device pointer", cuPointerGetAttribute(&pointer, 3, address));
	say_text("host: device pointer is the address", pointer == address ? "yes" : "no");
	say("host: is it RDMA capable", cuPointerGetAttribute(&rdma, 15, address));
	say_text("host: RDMA capable", rdma ? "yes" : "no");
	need(allow_node(address, 2 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	say("host: no CPU access, host pointer", cuPointerGetAttribute(&host, 4, address));
}
