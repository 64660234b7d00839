/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* vulkan_cat FILE: writes FILE, of a mount with backend=vulkan, to standard output. The GPU copies
 * the bytes out of the file's own memory, which Vulkan imports; no byte is read through the mount.
 * vulkan_cat FILE OFFSET TEXT: the GPU writes TEXT into the file at OFFSET, a multiple of 4.
 *
 *   gcc -O2 -o vulkan_cat vulkan_cat.c $(pkg-config --cflags --libs gpumem) -lvulkan */
#include <fcntl.h>
#include <gpumem.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

#define STAGE	    (1ULL << 20)
#define DEVICES_MAX 16

struct gpu {
	VkInstance instance;
	VkPhysicalDevice physical;
	VkPhysicalDeviceMemoryProperties memory;
	VkDevice device;
	VkQueue queue;
	VkCommandPool pool;
	VkCommandBuffer commands;
};

/* A buffer over the whole of some memory. */
struct buffer {
	VkBuffer buffer;
	VkDeviceMemory memory;
};

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "vulkan_cat: %s: %s\n", what, why);
	exit(1);
}

static void check(VkResult result, const char *call)
{
	char why[32];

	if (result == VK_SUCCESS)
		return;
	snprintf(why, sizeof(why), "Vulkan error %d", (int)result);
	die(call, why);
}

static VkPhysicalDevice physical_find(VkInstance instance, const uint8_t uuid[16])
{
	VkPhysicalDevice found[DEVICES_MAX];
	uint32_t n = DEVICES_MAX;

	check(vkEnumeratePhysicalDevices(instance, &n, found), "vkEnumeratePhysicalDevices");
	for (uint32_t i = 0; i < n; i++) {
		VkPhysicalDeviceIDProperties id = {
		    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
		VkPhysicalDeviceProperties2 all = {
		    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &id};

		vkGetPhysicalDeviceProperties2(found[i], &all);
		if (memcmp(id.deviceUUID, uuid, VK_UUID_SIZE) == 0)
			return found[i];
	}
	die("Vulkan", "the file's GPU is not visible here");
}

static void device_open(struct gpu *gpu)
{
	static const char *const extension = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;
	const float priority = 1;
	VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
					 .queueCount = 1,
					 .pQueuePriorities = &priority};
	VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
				   .queueCreateInfoCount = 1,
				   .pQueueCreateInfos = &queue,
				   .enabledExtensionCount = 1,
				   .ppEnabledExtensionNames = &extension};

	check(vkCreateDevice(gpu->physical, &info, NULL, &gpu->device), "vkCreateDevice");
	vkGetDeviceQueue(gpu->device, 0, 0, &gpu->queue);
	vkGetPhysicalDeviceMemoryProperties(gpu->physical, &gpu->memory);
}

static void gpu_open(struct gpu *gpu, const uint8_t uuid[16])
{
	VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
					 .apiVersion = VK_API_VERSION_1_1};
	VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
				     .pApplicationInfo = &application};
	VkCommandPoolCreateInfo pool_info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
					     .flags =
						 VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT};
	VkCommandBufferAllocateInfo commands = {
	    .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandBufferCount = 1};

	check(vkCreateInstance(&info, NULL, &gpu->instance), "vkCreateInstance");
	gpu->physical = physical_find(gpu->instance, uuid);
	device_open(gpu);
	check(vkCreateCommandPool(gpu->device, &pool_info, NULL, &gpu->pool),
	      "vkCreateCommandPool");
	commands.commandPool = gpu->pool;
	check(vkAllocateCommandBuffers(gpu->device, &commands, &gpu->commands),
	      "vkAllocateCommandBuffers");
}

static void gpu_close(struct gpu *gpu)
{
	vkDestroyCommandPool(gpu->device, gpu->pool, NULL);
	vkDestroyDevice(gpu->device, NULL);
	vkDestroyInstance(gpu->instance, NULL);
}

static VkMemoryRequirements buffer_create(struct gpu *gpu, struct buffer *buffer, uint64_t bytes,
					  const void *next)
{
	VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
				   .pNext = next,
				   .size = bytes,
				   .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
					    VK_BUFFER_USAGE_TRANSFER_DST_BIT};
	VkMemoryRequirements needs;

	check(vkCreateBuffer(gpu->device, &info, NULL, &buffer->buffer), "vkCreateBuffer");
	vkGetBufferMemoryRequirements(gpu->device, buffer->buffer, &needs);
	return needs;
}

/* Allocates, or imports by next, from the first type that the buffer allows and that has the
 * properties. */
static VkResult memory_allocate(struct gpu *gpu, struct buffer *buffer, uint64_t bytes,
				uint32_t types, VkMemoryPropertyFlags properties, const void *next)
{
	for (uint32_t i = 0; i < gpu->memory.memoryTypeCount; i++) {
		VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
					     .pNext = next,
					     .allocationSize = bytes,
					     .memoryTypeIndex = i};

		if (types >> i & 1 &&
		    (gpu->memory.memoryTypes[i].propertyFlags & properties) == properties)
			return vkAllocateMemory(gpu->device, &info, NULL, &buffer->memory);
	}
	return VK_ERROR_FEATURE_NOT_PRESENT;
}

/* The import takes over the piece's descriptor. */
static struct buffer piece_import(struct gpu *gpu, const struct gpumem_piece *piece)
{
	VkExternalMemoryBufferCreateInfo external = {
	    .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
	    .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
	VkImportMemoryFdInfoKHR from = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
					.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
					.fd = piece->fd};
	struct buffer made;

	if (!(piece->handles & GPUMEM_HANDLE_OPAQUE))
		die("the file", "its memory is not Vulkan's");
	VkMemoryRequirements needs = buffer_create(gpu, &made, piece->bytes, &external);

	check(memory_allocate(gpu, &made, piece->memory_bytes, needs.memoryTypeBits,
			      VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, &from),
	      "import");
	check(vkBindBufferMemory(gpu->device, made.buffer, made.memory, piece->memory_offset),
	      "vkBindBufferMemory");
	return made;
}

static struct buffer stage_new(struct gpu *gpu, void **address)
{
	const VkMemoryPropertyFlags visible =
	    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
	struct buffer made;
	VkMemoryRequirements needs = buffer_create(gpu, &made, STAGE, NULL);

	check(memory_allocate(gpu, &made, needs.size, needs.memoryTypeBits, visible, NULL),
	      "vkAllocateMemory");
	check(vkBindBufferMemory(gpu->device, made.buffer, made.memory, 0), "vkBindBufferMemory");
	check(vkMapMemory(gpu->device, made.memory, 0, VK_WHOLE_SIZE, 0, address), "vkMapMemory");
	return made;
}

static void buffer_free(struct gpu *gpu, struct buffer buffer)
{
	vkDestroyBuffer(gpu->device, buffer.buffer, NULL);
	vkFreeMemory(gpu->device, buffer.memory, NULL);
}

/* Copies by the GPU, and waits. */
static void buffer_copy(struct gpu *gpu, VkBuffer to, VkBuffer from, VkBufferCopy part)
{
	VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
	VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
			       .commandBufferCount = 1,
			       .pCommandBuffers = &gpu->commands};

	check(vkBeginCommandBuffer(gpu->commands, &begin), "vkBeginCommandBuffer");
	vkCmdCopyBuffer(gpu->commands, from, to, 1, &part);
	check(vkEndCommandBuffer(gpu->commands), "vkEndCommandBuffer");
	check(vkQueueSubmit(gpu->queue, 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit");
	check(vkQueueWaitIdle(gpu->queue), "vkQueueWaitIdle");
}

static void piece_print(struct gpu *gpu, const struct gpumem_piece *piece, uint64_t size)
{
	uint64_t end = piece->offset + piece->bytes < size ? piece->bytes : size - piece->offset;
	struct buffer buffer = piece_import(gpu, piece);
	void *memory;
	struct buffer stage = stage_new(gpu, &memory);

	for (uint64_t at = 0; at < end; at += STAGE) {
		uint64_t bytes = end - at < STAGE ? end - at : STAGE;

		buffer_copy(gpu, stage.buffer, buffer.buffer,
			    (VkBufferCopy){.srcOffset = at, .size = bytes});
		if (fwrite(memory, 1, bytes, stdout) != bytes)
			die("standard output", "a write failed");
	}
	buffer_free(gpu, stage);
	buffer_free(gpu, buffer);
}

static void piece_write(struct gpu *gpu, const struct gpumem_piece *piece, uint64_t at,
			const char *text)
{
	struct buffer buffer = piece_import(gpu, piece);
	void *memory;
	struct buffer stage = stage_new(gpu, &memory);

	if (strlen(text) > piece->bytes - at)
		die(text, "does not fit behind the offset");
	memcpy(memory, text, strlen(text));
	buffer_copy(gpu, buffer.buffer, stage.buffer,
		    (VkBufferCopy){.dstOffset = at, .size = strlen(text)});
	buffer_free(gpu, stage);
	buffer_free(gpu, buffer);
}

static struct gpumem_piece *pieces_get(gpumem *file, int flags, size_t *n)
{
	if (gpumem_export(file, flags, NULL, n) < 0)
		die("gpumem_export", gpumem_error());
	struct gpumem_piece *pieces = calloc(*n + 1, sizeof(*pieces));
	if (!pieces || gpumem_export(file, flags, pieces, n) < 0)
		die("gpumem_export", gpumem_error());
	return pieces;
}

int main(int argc, char **argv)
{
	struct gpumem_info info = {.bytes = sizeof(info)};
	bool writes = argc == 4;
	struct gpu gpu = {0};
	size_t n;

	if (argc != 2 && !writes) {
		fprintf(stderr, "usage: vulkan_cat FILE [OFFSET TEXT]\n");
		return 2;
	}
	gpumem *file = gpumem_open(argv[1], writes ? O_RDWR : O_RDONLY);
	if (!file || gpumem_get_info(file, &info) < 0)
		die(argv[1], gpumem_error());
	struct gpumem_piece *pieces = pieces_get(file, writes ? 0 : GPUMEM_EXPORT_FOR_READING, &n);
	char *end = "";
	uint64_t at = writes ? strtoull(argv[2], &end, 0) : 0;

	if (*end || (writes && at >= info.size)) {
		fprintf(stderr, "vulkan_cat: %s: OFFSET is a number below the file's size\n",
			argv[2]);
		return 2;
	}
	gpu_open(&gpu, info.uuid);
	for (size_t i = 0; i < n; i++) {
		if (!writes && pieces[i].offset < info.size)
			piece_print(&gpu, &pieces[i], info.size);
		else if (writes && at >= pieces[i].offset &&
			 at - pieces[i].offset < pieces[i].bytes)
			piece_write(&gpu, &pieces[i], at - pieces[i].offset, argv[3]);
		else
			close(pieces[i].fd);
	}
	gpu_close(&gpu);
	free(pieces);
	return gpumem_close(file) == 0 && fflush(stdout) == 0 ? 0 : 1;
}
