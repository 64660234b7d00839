/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests of the stand-ins beside libcuda.so.1: the answers of each stand-in must fit the state of
 * libcuda.so.1. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

#include "backend/cuda/driver/abi.h"
#include "tests/driver/selftest.h"

#define ROW(need, field, symbol, ...) #symbol,

START_TEST(every_function_that_is_asked_for_is_there)
{
	static const char *const cuda[] = {CUDA_FUNCTIONS(ROW)};
	static const char *const nvml[] = {NVML_FUNCTIONS(ROW)};
	static const char *const gdr[] = {GDR_FUNCTIONS(ROW)};
	static const struct {
		const char *library;
		const char *const *symbols;
		size_t n;
	} tables[] = {
	    {"libcuda.so.1", cuda, sizeof(cuda) / sizeof(cuda[0])},
	    {"libnvidia-ml.so.1", nvml, sizeof(nvml) / sizeof(nvml[0])},
	    {"libgdrapi.so.2", gdr, sizeof(gdr) / sizeof(gdr[0])},
	};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		void *library = dlopen(tables[i].library, RTLD_NOW);

		ck_assert_msg(library, "%s", tables[i].library);
		for (size_t j = 0; j < tables[i].n; j++)
			ck_assert_msg(dlsym(library, tables[i].symbols[j]), "%s",
				      tables[i].symbols[j]);
	}
}
END_TEST

START_TEST(functions_are_found_by_their_plain_names)
{
	CUdriverProcAddressQueryResult status;
	void *function;

	ck_cuda(cuGetProcAddress_v2("cuMemcpyHtoDAsync", &function, 13000, 0, &status));
	ck_assert_ptr_eq(function, (void *)cuMemcpyHtoDAsync_v2);
	ck_cuda(cuGetProcAddress_v2("cuMemMap", &function, 12000, 0, &status));
	ck_assert_ptr_eq(function, (void *)cuMemMap);
	ck_cuda_is(cuGetProcAddress_v2("cuNoSuch", &function, 13000, 0, &status), NOT_FOUND);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}
END_TEST

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, gm_nvmlDevice_t *device);
int nvmlDeviceGetHandleByUUID(const char *uuid, gm_nvmlDevice_t *device);
int nvmlDeviceGetUUID(gm_nvmlDevice_t device, char *uuid, unsigned length);
int nvmlDeviceGetMemoryInfo(gm_nvmlDevice_t device, gm_nvmlMemory_t *memory);
int nvmlDeviceGetMemoryInfo_v2(gm_nvmlDevice_t device, gm_nvmlMemory_v2_t *memory);
int nvmlDeviceGetBAR1MemoryInfo(gm_nvmlDevice_t device, gm_nvmlBAR1Memory_t *memory);

START_TEST(nvml_tells_what_is_used)
{
	gm_nvmlMemory_v2_t v2 = {.version = GM_nvmlMemory_v2};
	gm_nvmlMemory_t memory;
	gm_nvmlDevice_t device, same;
	char uuid[48];

	ck_assert_int_ne(nvmlDeviceGetHandleByIndex_v2(1, &device), 0);
	ck_assert_int_eq(nvmlInit_v2(), 0);
	ck_assert_int_eq(nvmlDeviceGetHandleByIndex_v2(1, &device), 0);
	ck_assert_int_ne(nvmlDeviceGetHandleByIndex_v2(2, &same), 0);
	ck_assert_int_eq(nvmlDeviceGetUUID(device, uuid, sizeof(uuid)), 0);
	ck_assert_int_eq(nvmlDeviceGetHandleByUUID(uuid, &same), 0);
	ck_assert_ptr_eq(device, same);

	use_device(1);
	struct chunk chunk = chunk_new(1, 6 * MIB);
	ck_assert_int_eq(nvmlDeviceGetMemoryInfo(device, &memory), 0);
	ck_assert_uint_eq(memory.used, 6 * MIB);
	ck_assert_uint_eq(memory.free + memory.used, memory.total);
	ck_assert_int_eq(nvmlDeviceGetMemoryInfo_v2(device, &v2), 0);
	ck_assert_uint_eq(v2.used, 6 * MIB);
	v2.version = 0;
	ck_assert_int_ne(nvmlDeviceGetMemoryInfo_v2(device, &v2), 0);
	chunk_free(&chunk);
	ck_assert_int_eq(nvmlShutdown(), 0);
}
END_TEST

static void file_write(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

/* The free bytes of GPU 0 as NVML and as cuMemGetInfo tell. */
static void assert_free(uint64_t bytes)
{
	gm_nvmlMemory_t memory;
	gm_nvmlDevice_t device;
	size_t available, total;

	ck_assert_int_eq(nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
	ck_assert_int_eq(nvmlDeviceGetMemoryInfo(device, &memory), 0);
	ck_assert_uint_eq(memory.free, bytes);
	ck_assert_uint_eq(memory.free + memory.used, memory.total);
	ck_cuda(cuMemGetInfo_v2(&available, &total));
	ck_assert_uint_eq(available, bytes);
	ck_assert_uint_eq(total, 64 * MIB);
}

START_TEST(memory_is_taken_by_other_programs)
{
	char path[] = "/tmp/standin-taken-XXXXXX";
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle handle;

	close(mkstemp(path));
	setenv("GPUMEM_STANDIN_MEMORY", "64M", 1);
	setenv("GPUMEM_STANDIN_TAKEN_FILE", path, 1);
	use_device(0);
	ck_assert_int_eq(nvmlInit_v2(), 0);
	assert_free(64 * MIB);
	file_write(path, "# another program\ndevice1=64M\ndevice0=40M\n");
	assert_free(24 * MIB);
	ck_cuda_is(cuMemCreate(&handle, 26 * MIB, &prop, 0), OUT_OF_MEMORY);
	ck_cuda(cuMemCreate(&handle, 24 * MIB, &prop, 0));
	assert_free(0);
	/* Memory that the process has stays; NVML counts no more than the GPU has. */
	file_write(path, "device0=60M");
	assert_free(0);
	ck_cuda(cuMemRelease(handle));
	assert_free(4 * MIB);
	unlink(path);
	assert_free(64 * MIB);
	ck_assert_int_eq(nvmlShutdown(), 0);
}
END_TEST

static uint64_t bar_used(unsigned gpu)
{
	gm_nvmlBAR1Memory_t memory;
	gm_nvmlDevice_t device;

	ck_assert_int_eq(nvmlInit_v2(), 0);
	ck_assert_int_eq(nvmlDeviceGetHandleByIndex_v2(gpu, &device), 0);
	ck_assert_int_eq(nvmlDeviceGetBAR1MemoryInfo(device, &memory), 0);
	ck_assert_int_eq(nvmlShutdown(), 0);
	return memory.bar1Used;
}

/* The device reads a byte written through the mapping, and the reverse. */
static void assert_shared(volatile uint8_t *mapped, const struct chunk *chunk)
{
	uint8_t byte = 0;

	mapped[77] = 0x3C;
	ck_cuda(cuMemcpyDtoH_v2(&byte, chunk->address + 77, 1));
	ck_assert_int_eq(byte, 0x3C);
	ck_cuda(cuMemsetD8_v2(chunk->address + chunk->size - 1, 0x5D, 1));
	ck_cuda(cuCtxSynchronize());
	ck_assert_int_eq(mapped[chunk->size - 1], 0x5D);
}

static void assert_unrelated(volatile uint8_t *mapped, const struct chunk *chunk)
{
	uint8_t byte = 0;

	mapped[77] = 0x3C;
	ck_cuda(cuMemcpyDtoH_v2(&byte, chunk->address + 77, 1));
	ck_assert_int_ne(byte, 0x3C);
}

static CUresult dmabuf(const struct chunk *chunk, int *fd)
{
	return cuMemGetHandleForAddressRange(fd, chunk->address, chunk->size,
					     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

START_TEST(dmabuf_modes)
{
	static const char *const modes[] = {"0", "1", "lie", "nommap"};
	int fd;

	setenv("GPUMEM_STANDIN_DMABUF", modes[_i], 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 4 * MIB);
	if (_i == 0) {
		ck_cuda_is(dmabuf(&chunk, &fd), NOT_SUPPORTED);
		return;
	}
	ck_cuda(dmabuf(&chunk, &fd));
	void *mapped = mmap(NULL, chunk.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (_i == 3)
		ck_assert_ptr_eq(mapped, MAP_FAILED);
	else if (_i == 1)
		assert_shared(mapped, &chunk);
	else
		assert_unrelated(mapped, &chunk);
}
END_TEST

gm_gdr_t gdr_open(void);
int gdr_close(gm_gdr_t gdr);
int gdr_pin_buffer_v2(gm_gdr_t gdr, unsigned long address, size_t size, uint32_t flags,
		      gm_gdr_mh_t *handle);
int gdr_unpin_buffer(gm_gdr_t gdr, gm_gdr_mh_t handle);
int gdr_map(gm_gdr_t gdr, gm_gdr_mh_t handle, void **address, size_t size);
int gdr_unmap(gm_gdr_t gdr, gm_gdr_mh_t handle, void *address, size_t size);
int gdr_get_info_v2(gm_gdr_t gdr, gm_gdr_mh_t handle, gm_gdr_info_v2_t *info);

START_TEST(gdrcopy_is_absent_by_default)
{
	ck_assert_ptr_null(gdr_open());
}
END_TEST

START_TEST(gdrcopy_maps)
{
	gm_gdr_info_v2_t info;
	gm_gdr_mh_t handle;
	void *mapped;

	setenv("GPUMEM_STANDIN_GDR", "1", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 4 * MIB);
	gm_gdr_t gdr = gdr_open();
	ck_assert_ptr_nonnull(gdr);
	ck_assert_int_eq(gdr_pin_buffer_v2(gdr, chunk.address, chunk.size, 1, &handle), EINVAL);
	ck_assert_int_eq(gdr_pin_buffer_v2(gdr, chunk.address, 2 * chunk.size, 0, &handle), EINVAL);
	ck_assert_int_eq(gdr_pin_buffer_v2(gdr, chunk.address, chunk.size, 0, &handle), 0);
	ck_assert_int_eq(gdr_map(gdr, handle, &mapped, chunk.size), 0);
	ck_assert_uint_eq(bar_used(0), chunk.size);
	assert_shared(mapped, &chunk);
	ck_assert_int_eq(gdr_get_info_v2(gdr, handle, &info), 0);
	ck_assert_uint_eq(info.va, chunk.address);
	ck_assert_uint_eq(info.mapped_size, chunk.size);
	ck_assert_int_eq(gdr_unmap(gdr, handle, mapped, chunk.size), 0);
	ck_assert_uint_eq(bar_used(0), 0);
	ck_assert_int_eq(gdr_unpin_buffer(gdr, handle), 0);
	ck_assert_int_eq(gdr_unpin_buffer(gdr, handle), EINVAL);
	ck_assert_int_eq(gdr_close(gdr), 0);
}
END_TEST

/* gdrdrv refuses memory that was not created gpuDirectRDMACapable. */
START_TEST(gdrcopy_wants_memory_made_for_it)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle memory;
	CUdeviceptr address;
	gm_gdr_mh_t handle;

	setenv("GPUMEM_STANDIN_GDR", "1", 1);
	use_device(0);
	prop.allocFlags.gpuDirectRDMACapable = 0;
	ck_cuda(cuMemCreate(&memory, 2 * MIB, &prop, 0));
	ck_cuda(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
	ck_cuda(cuMemMap(address, 2 * MIB, 0, memory, 0));
	gm_gdr_t gdr = gdr_open();
	ck_assert_int_eq(gdr_pin_buffer_v2(gdr, address, 2 * MIB, 0, &handle), EINVAL);
	gdr_close(gdr);
}
END_TEST

PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name);
#define VK_CALL(instance, name) ((PFN_##name)vkGetInstanceProcAddr(instance, #name))

static VkInstance instance_new(void)
{
	VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
	VkInstance instance;

	ck_assert_int_eq(VK_CALL(NULL, vkCreateInstance)(&info, NULL, &instance), VK_SUCCESS);
	return instance;
}

static VkDevice device_by_uuid(VkInstance instance, const CUuuid *uuid)
{
	static const char *const extensions[] = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME};
	VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
				   .enabledExtensionCount = 1,
				   .ppEnabledExtensionNames = extensions};
	VkPhysicalDevice devices[8];
	uint32_t n = 8;
	VkDevice device = NULL;

	ck_assert_int_eq(VK_CALL(instance, vkEnumeratePhysicalDevices)(instance, &n, devices),
			 VK_SUCCESS);
	for (uint32_t i = 0; i < n; i++) {
		VkPhysicalDeviceIDProperties id = {
		    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
		VkPhysicalDeviceProperties2 properties = {
		    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &id};

		VK_CALL(instance, vkGetPhysicalDeviceProperties2)(devices[i], &properties);
		if (!memcmp(id.deviceUUID, uuid->bytes, sizeof(uuid->bytes)))
			ck_assert_int_eq(
			    VK_CALL(instance, vkCreateDevice)(devices[i], &info, NULL, &device),
			    VK_SUCCESS);
	}
	ck_assert_ptr_nonnull(device);
	return device;
}

static VkResult import(VkInstance instance, VkDevice device, int fd, uint64_t size, uint32_t type,
		       VkDeviceMemory *memory)
{
	VkImportMemoryFdInfoKHR from = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
					.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
					.fd = fd};
	VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
				     .pNext = &from,
				     .allocationSize = size,
				     .memoryTypeIndex = type};

	return VK_CALL(instance, vkAllocateMemory)(device, &info, NULL, memory);
}

START_TEST(vulkan_maps_what_cuda_exported)
{
	VkDeviceMemory memory;
	CUuuid uuid;
	void *mapped;

	if (_i)
		setenv("GPUMEM_STANDIN_VULKAN", "lie", 1);
	use_device(1);
	ck_cuda(cuDeviceGetUuid_v2(&uuid, 1));
	struct chunk chunk = chunk_new(1, 4 * MIB);
	int fd = export_fd(&chunk);
	VkInstance instance = instance_new();
	VkDevice device = device_by_uuid(instance, &uuid);

	/* The import with a wrong size fails, and the fd stays the caller's. */
	ck_assert_int_eq(import(instance, device, fd, 2 * MIB, 3, &memory),
			 VK_ERROR_INVALID_EXTERNAL_HANDLE);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	ck_assert_int_eq(import(instance, device, fd, chunk.size, 3, &memory), VK_SUCCESS);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_uint_eq(bar_used(1), chunk.size);
	ck_assert_int_eq(
	    VK_CALL(instance, vkMapMemory)(device, memory, 0, VK_WHOLE_SIZE, 0, &mapped),
	    VK_SUCCESS);
	if (_i)
		assert_unrelated(mapped, &chunk);
	else
		assert_shared(mapped, &chunk);
	VK_CALL(instance, vkUnmapMemory)(device, memory);
	VK_CALL(instance, vkFreeMemory)(device, memory, NULL);
	ck_assert_uint_eq(bar_used(1), 0);
	VK_CALL(instance, vkDestroyDevice)(device, NULL);
	VK_CALL(instance, vkDestroyInstance)(instance, NULL);
}
END_TEST

/* Host-located memory belongs to no GPU, so that neither library takes the memory. */
START_TEST(host_memory_is_refused)
{
	CUmemAllocationProp prop = host_prop();
	struct chunk chunk = {.size = 2 * MIB};
	VkDeviceMemory memory;
	gm_gdr_mh_t handle;
	CUuuid uuid;

	setenv("GPUMEM_STANDIN_GDR", "1", 1);
	use_device(0);
	ck_cuda(cuDeviceGetUuid_v2(&uuid, 0));
	ck_cuda(cuMemCreate(&chunk.handle, chunk.size, &prop, 0));
	chunk_map(&chunk, 0);
	VkInstance instance = instance_new();
	VkDevice device = device_by_uuid(instance, &uuid);
	ck_assert_int_eq(import(instance, device, export_fd(&chunk), chunk.size, 3, &memory),
			 VK_ERROR_INVALID_EXTERNAL_HANDLE);
	gm_gdr_t gdr = gdr_open();
	ck_assert_int_eq(gdr_pin_buffer_v2(gdr, chunk.address, chunk.size, 0, &handle), EINVAL);
	gdr_close(gdr);
	VK_CALL(instance, vkDestroyDevice)(device, NULL);
	VK_CALL(instance, vkDestroyInstance)(instance, NULL);
}
END_TEST

/* Memory of the types listed first can be mapped, but the mapping shows other bytes. */
START_TEST(vulkan_traps)
{
	VkDeviceMemory memory;
	CUuuid uuid;
	void *mapped;

	setenv("GPUMEM_STANDIN_BAR", "2M", 1);
	use_device(0);
	ck_cuda(cuDeviceGetUuid_v2(&uuid, 0));
	struct chunk chunk = chunk_new(0, 4 * MIB);
	VkInstance instance = instance_new();
	VkDevice device = device_by_uuid(instance, &uuid);
	ck_assert_int_eq(import(instance, device, export_fd(&chunk), chunk.size, 0, &memory),
			 VK_SUCCESS);
	ck_assert_int_eq(
	    VK_CALL(instance, vkMapMemory)(device, memory, 0, VK_WHOLE_SIZE, 0, &mapped),
	    VK_SUCCESS);
	assert_unrelated(mapped, &chunk);
	VK_CALL(instance, vkFreeMemory)(device, memory, NULL);
	ck_assert_int_eq(import(instance, device, export_fd(&chunk), chunk.size, 3, &memory),
			 VK_ERROR_OUT_OF_DEVICE_MEMORY);
	VK_CALL(instance, vkDestroyDevice)(device, NULL);
	VK_CALL(instance, vkDestroyInstance)(instance, NULL);
}
END_TEST

START_TEST(vulkan_can_be_absent)
{
	VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
	VkInstance instance;

	setenv("GPUMEM_STANDIN_VULKAN", "0", 1);
	ck_assert_int_ne(VK_CALL(NULL, vkCreateInstance)(&info, NULL, &instance), VK_SUCCESS);
}
END_TEST

Suite *others_suite(void)
{
	Suite *suite = suite_create("others");
	TCase *tc = tcase_create("others");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, every_function_that_is_asked_for_is_there);
	tcase_add_test(tc, functions_are_found_by_their_plain_names);
	tcase_add_test(tc, nvml_tells_what_is_used);
	tcase_add_test(tc, memory_is_taken_by_other_programs);
	tcase_add_loop_test(tc, dmabuf_modes, 0, 4);
	tcase_add_test(tc, gdrcopy_is_absent_by_default);
	tcase_add_test(tc, gdrcopy_maps);
	tcase_add_test(tc, gdrcopy_wants_memory_made_for_it);
	tcase_add_loop_test(tc, vulkan_maps_what_cuda_exported, 0, 2);
	tcase_add_test(tc, vulkan_traps);
	tcase_add_test(tc, host_memory_is_refused);
	tcase_add_test(tc, vulkan_can_be_absent);
	suite_add_tcase(suite, tc);
	return suite;
}
