/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests of host-located memory: system memory that devices and the CPU use by the same address. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver/selftest.h"

/* Memory that device 0 may access. */
static struct chunk host_chunk_new(size_t size)
{
	CUmemAllocationProp prop = host_prop();
	struct chunk chunk = {.size = size};

	ck_cuda(cuMemCreate(&chunk.handle, size, &prop, 0));
	chunk_map(&chunk, 0);
	return chunk;
}

static CUresult cpu_access(const struct chunk *chunk, CUmemAccess_flags flags)
{
	return access_set(chunk, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, flags);
}

static uint8_t *cpu_address(const struct chunk *chunk)
{
	return (uint8_t *)(uintptr_t)chunk->address;
}

/* The kernel accesses the address for the program: a fault is an error of the system call. */
static bool cpu_can(const struct chunk *chunk, CUmemAccess_flags flags)
{
	uint8_t byte = 0;
	bool can = true;
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	if (flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
		can = write(fds[1], cpu_address(chunk), 1) == 1;
	else
		ck_assert_int_eq(write(fds[1], &byte, 1), 1);
	if (can && flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		can = read(fds[0], cpu_address(chunk), 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return can;
}

START_TEST(host_memory_is_created_on_a_node)
{
	CUmemAllocationProp prop = host_prop();
	CUmemGenericAllocationHandle handle;
	size_t granularity = 0;
	int value = -1;

	ck_cuda(cuInit(0));
	ck_cuda(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 1));
	ck_assert_int_eq(value, 0);
	ck_cuda(cuDeviceGetAttribute(
	    &value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1));
	ck_assert_int_eq(value, 1);
	ck_cuda(cuMemGetAllocationGranularity(&granularity, &prop, 0));
	ck_assert_uint_eq(granularity, 2 * MIB);
	ck_cuda_is(cuMemCreate(&handle, MIB, &prop, 0), INVALID_VALUE);
	prop.allocFlags.gpuDirectRDMACapable = 1;
	ck_cuda_is(cuMemCreate(&handle, 2 * MIB, &prop, 0), INVALID_VALUE);
	prop = host_prop();
	prop.location.id = 1;
	ck_cuda_is(cuMemCreate(&handle, 2 * MIB, &prop, 0), INVALID_VALUE);
	prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0};
	ck_cuda_is(cuMemCreate(&handle, 2 * MIB, &prop, 0), NOT_SUPPORTED);
}
END_TEST

START_TEST(host_memory_can_be_absent)
{
	CUmemAllocationProp prop = host_prop();
	CUmemGenericAllocationHandle handle;
	int value = -1;

	setenv("GPUMEM_STANDIN_HOST_MEMORY", "0", 1);
	ck_cuda(cuInit(0));
	ck_cuda(cuDeviceGetAttribute(
	    &value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	ck_assert_int_eq(value, 0);
	ck_cuda_is(cuMemCreate(&handle, 2 * MIB, &prop, 0), NOT_SUPPORTED);
}
END_TEST

START_TEST(host_memory_is_no_devices)
{
	CUmemAllocationProp prop = host_prop();
	CUmemGenericAllocationHandle handle;
	size_t before, after, total;

	setenv("GPUMEM_STANDIN_HOST_MEMORY", "16M", 1);
	use_device(0);
	ck_cuda(cuMemGetInfo_v2(&before, &total));
	struct chunk chunk = host_chunk_new(12 * MIB);
	ck_cuda(cuMemGetInfo_v2(&after, &total));
	ck_assert_uint_eq(before, after);
	ck_cuda_is(cuMemCreate(&handle, 6 * MIB, &prop, 0), OUT_OF_MEMORY);
	ck_cuda(cuMemCreate(&handle, 4 * MIB, &prop, 0));
	chunk_free(&chunk);
	ck_cuda(cuMemCreate(&handle, 12 * MIB, &prop, 0));
}
END_TEST

START_TEST(the_cpu_needs_access)
{
	unsigned long long flags = 9;
	CUmemLocation node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};

	use_device(0);
	struct chunk chunk = host_chunk_new(2 * MIB);
	ck_assert(!cpu_can(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READ));
	ck_cuda(cpu_access(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READ));
	ck_assert(cpu_can(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READ));
	ck_assert(!cpu_can(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ck_cuda(cuMemGetAccess(&flags, &node, chunk.address));
	ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
	ck_cuda(cpu_access(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ck_assert(cpu_can(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ck_cuda(cpu_access(&chunk, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	ck_assert(!cpu_can(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READ));

	ck_cuda(cpu_access(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ck_cuda(cuMemUnmap(chunk.address, chunk.size));
	ck_assert(!cpu_can(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READ));
	/* A new mapping begins without access. */
	ck_cuda(cuMemMap(chunk.address, chunk.size, 0, chunk.handle, 0));
	ck_assert(!cpu_can(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READ));
	chunk_free(&chunk);
}
END_TEST

START_TEST(access_is_for_locations_that_can_have_it)
{
	use_device(0);
	struct chunk host = host_chunk_new(2 * MIB), device = chunk_new(0, 2 * MIB);
	ck_cuda_is(cpu_access(&device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), NOT_SUPPORTED);
	ck_cuda_is(access_set(&host, CU_MEM_LOCATION_TYPE_HOST_NUMA, 1, 3), INVALID_VALUE);
	ck_cuda_is(access_set(&host, CU_MEM_LOCATION_TYPE_HOST, 0, 3), INVALID_VALUE);
	ck_cuda_is(cpu_access(&host, 2), INVALID_VALUE);
	ck_assert(!cpu_can(&host, CU_MEM_ACCESS_FLAGS_PROT_READ));
}
END_TEST

/* Devices that cannot reach each other reach system memory. */
START_TEST(every_device_reaches_host_memory)
{
	static uint8_t byte;

	setenv("GPUMEM_STANDIN_PEER", _i ? "refuse" : "0", 1);
	use_device(0);
	struct chunk chunk = host_chunk_new(2 * MIB);
	use_device(1);
	ck_cuda_is(cuMemcpyDtoH_v2(&byte, chunk.address, 1), INVALID_VALUE);
	ck_cuda(access_set(&chunk, CU_MEM_LOCATION_TYPE_DEVICE, 1, 3));
	ck_cuda(cuMemcpyDtoH_v2(&byte, chunk.address, 1));
	ck_assert_int_eq(byte, 0xA5);
}
END_TEST

/* The test needs no access for the CPU but at the end. */
START_TEST(devices_copy_host_memory)
{
	static uint8_t in[64] = "some bytes", out[64];

	use_device(0);
	struct chunk host = host_chunk_new(2 * MIB), device = chunk_new(0, 2 * MIB);
	ck_cuda(cuMemcpyHtoD_v2(host.address + 4096, in, 64));
	ck_cuda(cuMemcpyDtoD_v2(device.address, host.address + 4096, 64));
	ck_cuda(cuMemcpyAsync(host.address, device.address, 64, NULL));
	ck_cuda(cuMemcpyDtoH_v2(out, host.address, 64));
	ck_assert_mem_eq(in, out, 64);
	ck_cuda(cuMemsetD8_v2(host.address, 7, 32));
	ck_cuda(cuCtxSynchronize());
	ck_cuda(cpu_access(&host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ck_assert_int_eq(cpu_address(&host)[31], 7);
	ck_assert_int_eq(cpu_address(&host)[32], in[32]);
	ck_assert_int_eq(cpu_address(&host)[4096], 's');
	cpu_address(&host)[0] = 8;
	ck_cuda(cuMemcpyDtoH_v2(out, host.address, 1));
	ck_assert_int_eq(out[0], 8);
}
END_TEST

START_TEST(host_memory_is_the_host_side_of_a_copy)
{
	setenv("GPUMEM_STANDIN_PAGEABLE", "error", 1);
	use_device(0);
	struct chunk host = host_chunk_new(2 * MIB), device = chunk_new(0, 2 * MIB);
	uint8_t *bytes = cpu_address(&host);
	/* The access of the CPU counts, not that of the device. */
	ck_cuda_is(cuMemcpyHtoDAsync_v2(device.address, bytes, 64, NULL), INVALID_VALUE);
	ck_cuda(access_set(&host, CU_MEM_LOCATION_TYPE_DEVICE, 0, 0));
	ck_cuda(cpu_access(&host, CU_MEM_ACCESS_FLAGS_PROT_READ));
	ck_cuda(cuMemcpyHtoDAsync_v2(device.address, bytes, 64, NULL));
	ck_cuda_is(cuMemcpyDtoHAsync_v2(bytes, device.address, 64, NULL), INVALID_VALUE);
	ck_cuda_is(cuMemcpyHtoD_v2(device.address, bytes + 2 * MIB - 32, 64), INVALID_VALUE);
	ck_cuda(cpu_access(&host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	memset(bytes, 0x11, 4096);
	ck_cuda(cuMemcpyHtoDAsync_v2(device.address, bytes, 4096, NULL));
	ck_cuda(cuMemcpyDtoHAsync_v2(bytes + MIB, device.address, 4096, NULL));
	ck_cuda(cuStreamSynchronize(NULL));
	ck_assert_mem_eq(bytes, bytes + MIB, 4096);
	ck_assert_int_eq(bytes[MIB + 4096], 0xA5);
}
END_TEST

/* The exporter is a process that has ended before the import. */
START_TEST(another_process_imports_host_memory)
{
	int to_parent[2], to_child[2], status;
	char path[64];

	ck_assert_int_eq(pipe(to_parent) | pipe(to_child), 0);
	pid_t child = fork();
	if (!child) {
		use_device(0);
		struct chunk chunk = host_chunk_new(2 * MIB);
		ck_cuda(cpu_access(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
		cpu_address(&chunk)[5] = 0x66;
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), export_fd(&chunk));
		if (write(to_parent[1], path, sizeof(path)) != sizeof(path) ||
		    read(to_child[0], path, 1) != 1)
			_exit(1);
		_exit(0);
	}
	ck_assert_int_eq(read(to_parent[0], path, sizeof(path)), sizeof(path));
	int fd = open(path, O_PATH);
	ck_assert_int_eq(write(to_child[1], "", 1), 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);

	struct chunk chunk = {.size = 2 * MIB};
	size_t available, total;
	use_device(0);
	ck_cuda(cuMemImportFromShareableHandle(&chunk.handle, (void *)(intptr_t)fd, 1));
	chunk_map(&chunk, 0);
	ck_cuda(cpu_access(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ck_assert_int_eq(cpu_address(&chunk)[5], 0x66);
	ck_assert_int_eq(cpu_address(&chunk)[6], 0xA5);
	ck_cuda(cuMemGetInfo_v2(&available, &total));
	ck_assert_uint_eq(available, total);
	chunk_free(&chunk);
}
END_TEST

START_TEST(a_pointer_into_host_memory_is_a_host_pointer)
{
	unsigned type = 0;
	void *pointer = NULL;
	int device = 5;
	unsigned char rdma = 1;

	use_device(0);
	struct chunk chunk = host_chunk_new(2 * MIB);
	CUdeviceptr at = chunk.address + 64;
	ck_cuda(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
	ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
	ck_cuda(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
	ck_assert_int_eq(device, 0);
	ck_cuda(cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, at));
	ck_assert_int_eq(rdma, 0);
	ck_cuda_is(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, at),
		   INVALID_VALUE);
	ck_cuda(cpu_access(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READ));
	ck_cuda(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
	ck_assert_ptr_eq(pointer, cpu_address(&chunk) + 64);
}
END_TEST

/* Without a current context, calls about host-located memory involve no device. */
START_TEST(host_memory_outlives_a_lost_device)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle handle;
	static uint8_t byte;

	setenv("GPUMEM_STANDIN_FAULT", "device0@2=DEVICE_LOST", 1);
	use_device(0);
	struct chunk chunk = host_chunk_new(2 * MIB); /* no operation of the device */
	ck_cuda(cpu_access(&chunk, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ck_cuda(cuMemcpyDtoH_v2(&byte, chunk.address, 1));
	cpu_address(&chunk)[0] = 0x42;
	ck_cuda_is(cuMemcpyDtoH_v2(&byte, chunk.address, 1), UNKNOWN);
	ck_cuda(cuCtxSetCurrent(NULL));
	ck_cuda_is(cuMemCreate(&handle, 2 * MIB, &prop, 0), UNKNOWN);
	ck_cuda_is(access_set(&chunk, CU_MEM_LOCATION_TYPE_DEVICE, 0, 3), UNKNOWN);
	ck_assert_int_eq(cpu_address(&chunk)[0], 0x42);
	use_device(1);
	ck_cuda(access_set(&chunk, CU_MEM_LOCATION_TYPE_DEVICE, 1, 3));
	ck_cuda(cuMemcpyDtoH_v2(&byte, chunk.address, 1));
	ck_assert_int_eq(byte, 0x42);
	chunk_free(&chunk);
}
END_TEST

START_TEST(bad_host_memory_ends_the_device_that_reads_it)
{
	static uint8_t byte;

	setenv("GPUMEM_STANDIN_FAULT", "memory2=ECC_UNCORRECTABLE+~", 1);
	use_device(0);
	struct chunk good = host_chunk_new(2 * MIB), bad = host_chunk_new(2 * MIB);
	ck_cuda(cuMemcpyDtoH_v2(&byte, good.address, 1));
	ck_cuda_is(cuMemcpyDtoH_v2(&byte, bad.address, 1), ECC_UNCORRECTABLE);
	ck_cuda_is(cuMemcpyDtoH_v2(&byte, good.address, 1), ECC_UNCORRECTABLE);
}
END_TEST

START_TEST(host_memory_has_no_dmabuf)
{
	int fd;

	setenv("GPUMEM_STANDIN_DMABUF", "1", 1);
	use_device(0);
	struct chunk chunk = host_chunk_new(2 * MIB);
	ck_cuda_is(cuMemGetHandleForAddressRange(&fd, chunk.address, chunk.size,
						 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
		   INVALID_VALUE);
}
END_TEST

Suite *host_suite(void)
{
	Suite *suite = suite_create("host-located memory");
	TCase *tc = tcase_create("host");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, host_memory_is_created_on_a_node);
	tcase_add_test(tc, host_memory_can_be_absent);
	tcase_add_test(tc, host_memory_is_no_devices);
	tcase_add_test(tc, the_cpu_needs_access);
	tcase_add_test(tc, access_is_for_locations_that_can_have_it);
	tcase_add_loop_test(tc, every_device_reaches_host_memory, 0, 2);
	tcase_add_test(tc, devices_copy_host_memory);
	tcase_add_test(tc, host_memory_is_the_host_side_of_a_copy);
	tcase_add_test(tc, another_process_imports_host_memory);
	tcase_add_test(tc, a_pointer_into_host_memory_is_a_host_pointer);
	tcase_add_test(tc, host_memory_outlives_a_lost_device);
	tcase_add_test(tc, bad_host_memory_ends_the_device_that_reads_it);
	tcase_add_test(tc, host_memory_has_no_dmabuf);
	suite_add_tcase(suite, tc);
	return suite;
}
