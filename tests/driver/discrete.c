/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A Vulkan driver for tests: Mesa's lavapipe, but with the memory types of NVIDIA's driver. The
 * device says that it is a discrete GPU, with the UUID of the stand-in's GPU 0. Buffers in exported
 * memory may not have a type that the CPU can map, and a second import as such a type shows the
 * same bytes. With GPUMEM_DISCRETE_FULL another program has taken the whole memory. Undefined
 * behaviour aborts. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "tests/driver/helpers.h"

#define LOCAL	 VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define CACHED	 VK_MEMORY_PROPERTY_HOST_CACHED_BIT
#define MAPPABLE (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)

/* The memory types, as NVIDIA's driver 580 has them; lavapipe has a single type. */
enum { SYSTEM_HIDDEN, GPU_HIDDEN, SYSTEM_UNCACHED, SYSTEM_CACHED, GPU_MAPPED, TYPES };
#define EXPORTABLE ((1U << GPU_MAPPED) - 1)
#define HIDDEN	   (1U << SYSTEM_HIDDEN | 1U << GPU_HIDDEN)

/* The families of queues, which all are lavapipe's only queue. */
enum { FAMILY_ALL, FAMILY_COPIES, FAMILY_COMPUTE, FAMILIES };
#define QUEUES 2

/* A queue as the program knows it. */
struct queue {
	uintptr_t dispatch; /* first; the loader's */
	VkQueue handle;	    /* lavapipe's only queue */
	struct queue *next;
};
#define LOADER_MAGIC 0x01CDC0DEUL

/* What must be known of a buffer or of memory. */
struct object {
	struct object *next;
	uint64_t handle;
	uint32_t types; /* a bit for each type that the object has, or may have */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER; /* held to submit */
static struct object *objects;
static struct queue *queues; /* under queue_lock; all that were made */

static PFN_vkGetInstanceProcAddr lavapipe;
static PFN_vkGetPhysicalDeviceProperties2 get_properties;
static PFN_vkGetPhysicalDeviceMemoryProperties2 get_memory;
static PFN_vkGetPhysicalDeviceMemoryProperties get_memory_1;
static PFN_vkGetMemoryHostPointerPropertiesEXT get_host_types;
static PFN_vkGetPhysicalDeviceQueueFamilyProperties get_families;
static PFN_vkCreateDevice create_device;
static PFN_vkGetDeviceProcAddr get_device;
static PFN_vkGetDeviceQueue get_queue;
static PFN_vkCreateCommandPool create_pool;
static PFN_vkQueueSubmit submit;
static PFN_vkCreateBuffer create_buffer;
static PFN_vkDestroyBuffer destroy_buffer;
static PFN_vkGetBufferMemoryRequirements get_requirements;
static PFN_vkAllocateMemory allocate;
static PFN_vkFreeMemory free_memory;
static PFN_vkBindBufferMemory bind;
static PFN_vkMapMemory map;

static void refuse(const char *what)
{
	fprintf(stderr, "standin: discrete: %s\n", what);
	abort();
}

static void object_add(uint64_t handle, uint32_t types)
{
	struct object *made = malloc(sizeof(*made));

	if (!made)
		abort();
	pthread_mutex_lock(&lock);
	*made = (struct object){objects, handle, types};
	objects = made;
	pthread_mutex_unlock(&lock);
}

static uint32_t object_types(uint64_t handle)
{
	uint32_t types = 0;

	pthread_mutex_lock(&lock);
	for (struct object *at = objects; at; at = at->next)
		if (at->handle == handle)
			types = at->types;
	pthread_mutex_unlock(&lock);
	return types;
}

static void object_remove(uint64_t handle)
{
	pthread_mutex_lock(&lock);
	for (struct object **at = &objects; *at; at = &(*at)->next) {
		struct object *object = *at;

		if (object->handle != handle)
			continue;
		*at = object->next;
		free(object);
		break;
	}
	pthread_mutex_unlock(&lock);
}

static VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice physical,
					     VkPhysicalDeviceProperties2 *out)
{
	static const uint8_t uuid[VK_UUID_SIZE] = STANDIN_UUID;
	VkBaseOutStructure *next = out->pNext;

	get_properties(physical, out);
	out->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
	snprintf(out->properties.deviceName, sizeof(out->properties.deviceName), "discrete");
	for (; next; next = next->pNext) {
		VkPhysicalDeviceIDProperties *id = (VkPhysicalDeviceIDProperties *)next;

		if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES)
			memcpy(id->deviceUUID, uuid, VK_UUID_SIZE);
	}
}

static void memory_types(VkPhysicalDeviceMemoryProperties *memory)
{
	memory->memoryHeapCount = 2;
	memory->memoryHeaps[1] = (VkMemoryHeap){memory->memoryHeaps[0].size, 0};
	memory->memoryTypeCount = TYPES;
	memory->memoryTypes[SYSTEM_HIDDEN] = (VkMemoryType){0, 1};
	memory->memoryTypes[GPU_HIDDEN] = (VkMemoryType){LOCAL, 0};
	memory->memoryTypes[SYSTEM_UNCACHED] = (VkMemoryType){MAPPABLE, 1};
	memory->memoryTypes[SYSTEM_CACHED] = (VkMemoryType){MAPPABLE | CACHED, 1};
	memory->memoryTypes[GPU_MAPPED] = (VkMemoryType){LOCAL | MAPPABLE, 0};
}

static VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice physical,
						    VkPhysicalDeviceMemoryProperties *out)
{
	get_memory_1(physical, out);
	memory_types(out);
}

static VKAPI_ATTR void VKAPI_CALL memory_properties2(VkPhysicalDevice physical,
						     VkPhysicalDeviceMemoryProperties2 *out)
{
	get_memory(physical, out);
	memory_types(&out->memoryProperties);
}

static VKAPI_ATTR VkResult VKAPI_CALL host_types(VkDevice device,
						 VkExternalMemoryHandleTypeFlagBits handle,
						 const void *host,
						 VkMemoryHostPointerPropertiesEXT *out)
{
	VkResult result = get_host_types(device, handle, host, out);

	out->memoryTypeBits = 1U << SYSTEM_UNCACHED | 1U << SYSTEM_CACHED;
	return result;
}

static VKAPI_ATTR void VKAPI_CALL families(VkPhysicalDevice physical, uint32_t *n,
					   VkQueueFamilyProperties *out)
{
	static const VkQueueFlags flags[FAMILIES] = {
	    [FAMILY_ALL] = VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT | VK_QUEUE_TRANSFER_BIT,
	    [FAMILY_COPIES] = VK_QUEUE_TRANSFER_BIT | VK_QUEUE_SPARSE_BINDING_BIT,
	    [FAMILY_COMPUTE] = VK_QUEUE_COMPUTE_BIT | VK_QUEUE_TRANSFER_BIT,
	};
	VkQueueFamilyProperties only;
	uint32_t one = 1;

	get_families(physical, &one, &only);
	for (uint32_t i = 0; out && i < FAMILIES && i < *n; i++) {
		out[i] = only;
		out[i].queueFlags = flags[i];
		out[i].queueCount = QUEUES;
	}
	*n = FAMILIES;
}

static VKAPI_ATTR VkResult VKAPI_CALL device_new(VkPhysicalDevice physical,
						 const VkDeviceCreateInfo *info,
						 const VkAllocationCallbacks *callbacks,
						 VkDevice *device)
{
	VkDeviceQueueCreateInfo queue = info->pQueueCreateInfos[0];
	VkDeviceCreateInfo asked = *info;

	if (getenv("GPUMEM_DISCRETE_FULL"))
		return VK_ERROR_OUT_OF_DEVICE_MEMORY;
	queue.queueFamilyIndex = 0;
	queue.queueCount = 1;
	asked.queueCreateInfoCount = 1;
	asked.pQueueCreateInfos = &queue;
	return create_device(physical, &asked, callbacks, device);
}

static VKAPI_ATTR void VKAPI_CALL queue_get(VkDevice device, uint32_t family, uint32_t number,
					    VkQueue *queue)
{
	struct queue *made = calloc(1, sizeof(*made));

	if (family >= FAMILIES || number >= QUEUES || !made)
		refuse("a queue that does not exist");
	get_queue(device, 0, 0, &made->handle);
	made->dispatch = LOADER_MAGIC;
	pthread_mutex_lock(&queue_lock);
	made->next = queues;
	queues = made;
	pthread_mutex_unlock(&queue_lock);
	*queue = (VkQueue)made;
}

static VKAPI_ATTR VkResult VKAPI_CALL pool_new(VkDevice device, const VkCommandPoolCreateInfo *info,
					       const VkAllocationCallbacks *callbacks,
					       VkCommandPool *pool)
{
	VkCommandPoolCreateInfo asked = *info;

	asked.queueFamilyIndex = 0;
	return create_pool(device, &asked, callbacks, pool);
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_submit(VkQueue queue, uint32_t n,
						   const VkSubmitInfo *infos, VkFence fence)
{
	pthread_mutex_lock(&queue_lock);
	VkResult result = submit(((struct queue *)queue)->handle, n, infos, fence);

	pthread_mutex_unlock(&queue_lock);
	return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL buffer_new(VkDevice device, const VkBufferCreateInfo *info,
						 const VkAllocationCallbacks *callbacks,
						 VkBuffer *buffer)
{
	const VkExternalMemoryBufferCreateInfo *next = info->pNext;
	uint32_t types = (1U << TYPES) - 1;
	VkResult result = create_buffer(device, info, callbacks, buffer);

	if (next && next->sType == VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO &&
	    next->handleTypes & VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT)
		types = EXPORTABLE;
	if (result == VK_SUCCESS)
		object_add((uint64_t)*buffer, types);
	return result;
}

static VKAPI_ATTR void VKAPI_CALL buffer_free(VkDevice device, VkBuffer buffer,
					      const VkAllocationCallbacks *callbacks)
{
	object_remove((uint64_t)buffer);
	destroy_buffer(device, buffer, callbacks);
}

static VKAPI_ATTR void VKAPI_CALL requirements(VkDevice device, VkBuffer buffer,
					       VkMemoryRequirements *out)
{
	get_requirements(device, buffer, out);
	out->memoryTypeBits = object_types((uint64_t)buffer);
}

/* Lavapipe closes the descriptor of an import that fails. NVIDIA's driver leaves the descriptor to
 * the program, and says that there is no memory. */
static int import_descriptor(const VkBaseInStructure *next)
{
	for (; next; next = next->pNext)
		if (next->sType == VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR)
			return ((const VkImportMemoryFdInfoKHR *)next)->fd;
	return -1;
}

static VKAPI_ATTR VkResult VKAPI_CALL memory_new(VkDevice device, const VkMemoryAllocateInfo *info,
						 const VkAllocationCallbacks *callbacks,
						 VkDeviceMemory *memory)
{
	VkMemoryAllocateInfo asked = *info;
	int fd = import_descriptor(info->pNext);
	int kept = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (info->memoryTypeIndex >= TYPES)
		refuse("memory of an unknown type");
	asked.memoryTypeIndex = 0;
	VkResult result = allocate(device, &asked, callbacks, memory);

	if (result == VK_SUCCESS)
		object_add((uint64_t)*memory, 1U << info->memoryTypeIndex);
	else if (fd >= 0)
		dup3(kept, fd, O_CLOEXEC);
	if (kept >= 0)
		close(kept);
	return result != VK_SUCCESS && fd >= 0 ? VK_ERROR_OUT_OF_DEVICE_MEMORY : result;
}

static VKAPI_ATTR void VKAPI_CALL memory_free(VkDevice device, VkDeviceMemory memory,
					      const VkAllocationCallbacks *callbacks)
{
	object_remove((uint64_t)memory);
	free_memory(device, memory, callbacks);
}

static VKAPI_ATTR VkResult VKAPI_CALL buffer_bind(VkDevice device, VkBuffer buffer,
						  VkDeviceMemory memory, VkDeviceSize offset)
{
	if (!(object_types((uint64_t)buffer) & object_types((uint64_t)memory)))
		refuse("a buffer in memory of a type that its requirements exclude");
	return bind(device, buffer, memory, offset);
}

static VKAPI_ATTR VkResult VKAPI_CALL memory_map(VkDevice device, VkDeviceMemory memory,
						 VkDeviceSize offset, VkDeviceSize size,
						 VkMemoryMapFlags flags, void **address)
{
	if (object_types((uint64_t)memory) & HIDDEN)
		refuse("a mapping of memory that is not host-visible");
	return map(device, memory, offset, size, flags, address);
}

struct row {
	const char *name;
	PFN_vkVoidFunction mine;
	void *theirs; /* where the function of lavapipe goes */
};

/* The function of the row with this name, after lavapipe's function is stored; NULL: no row. */
static PFN_vkVoidFunction row_find(const struct row *rows, size_t n, const char *name,
				   PFN_vkVoidFunction theirs)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(rows[i].name, name) != 0)
			continue;
		memcpy(rows[i].theirs, &theirs, sizeof(theirs));
		return theirs ? rows[i].mine : NULL;
	}
	return NULL;
}

#define ROW(name, mine, theirs)                                                                    \
	{                                                                                          \
		name, (PFN_vkVoidFunction)(mine), &(theirs)                                        \
	}
#define FIND(rows, name, theirs) row_find(rows, sizeof(rows) / sizeof((rows)[0]), name, theirs)

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char *name)
{
	static const struct row rows[] = {
	    ROW("vkGetDeviceQueue", queue_get, get_queue),
	    ROW("vkCreateCommandPool", pool_new, create_pool),
	    ROW("vkQueueSubmit", queue_submit, submit),
	    ROW("vkCreateBuffer", buffer_new, create_buffer),
	    ROW("vkDestroyBuffer", buffer_free, destroy_buffer),
	    ROW("vkGetBufferMemoryRequirements", requirements, get_requirements),
	    ROW("vkAllocateMemory", memory_new, allocate),
	    ROW("vkFreeMemory", memory_free, free_memory),
	    ROW("vkBindBufferMemory", buffer_bind, bind),
	    ROW("vkMapMemory", memory_map, map),
	    ROW("vkGetMemoryHostPointerPropertiesEXT", host_types, get_host_types),
	};
	PFN_vkVoidFunction theirs = get_device(device, name), mine = FIND(rows, name, theirs);

	return mine ? mine : theirs;
}

/* The names of the interface between the loader and a driver. */
STANDIN_API VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
									       const char *name);
STANDIN_API VKAPI_ATTR VkResult VKAPI_CALL
vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version);

static void *lavapipe_symbol(const char *name)
{
	void *library = dlopen("libvulkan_lvp.so", RTLD_NOW | RTLD_LOCAL);
	void *symbol = library ? dlsym(library, name) : NULL;

	if (!symbol)
		refuse("no lavapipe");
	return symbol;
}

STANDIN_API VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
									       const char *name)
{
	static const struct row rows[] = {
	    ROW("vkGetPhysicalDeviceProperties2", properties, get_properties),
	    ROW("vkGetPhysicalDeviceMemoryProperties", memory_properties, get_memory_1),
	    ROW("vkGetPhysicalDeviceMemoryProperties2", memory_properties2, get_memory),
	    ROW("vkGetPhysicalDeviceQueueFamilyProperties", families, get_families),
	    ROW("vkCreateDevice", device_new, create_device),
	    ROW("vkGetDeviceProcAddr", device_function, get_device),
	};

	if (!lavapipe) {
		void *symbol = lavapipe_symbol("vk_icdGetInstanceProcAddr");

		memcpy(&lavapipe, &symbol, sizeof(symbol));
	}
	PFN_vkVoidFunction theirs = lavapipe(instance, name), mine = FIND(rows, name, theirs);

	return mine ? mine : theirs;
}

STANDIN_API VKAPI_ATTR VkResult VKAPI_CALL
vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version)
{
	VkResult (*negotiate)(uint32_t *);
	void *symbol = lavapipe_symbol("vk_icdNegotiateLoaderICDInterfaceVersion");

	memcpy(&negotiate, &symbol, sizeof(symbol));
	return negotiate(version);
}
