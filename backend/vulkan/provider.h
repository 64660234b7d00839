/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The Vulkan provider's structs, and the functions that its files share. Every chunk is a
 * VkDeviceMemory that is exported as an opaque descriptor, with a VkBuffer over the whole for
 * copies. */
#ifndef BACKEND_VULKAN_PROVIDER_H
#define BACKEND_VULKAN_PROVIDER_H

#include <pthread.h>

#include "backend/backend.h"
#include "backend/vulkan/calls.h"

/* Queues of a device among which copiers are distributed. On an H100 16 threads copy 1 MiB each no
 * faster through more queues, and each takes 5 MiB of the GPU. */
#define VULKAN_QUEUES_MAX 2

struct vulkan_copier;

struct vulkan {
	struct backend base; /* first */
	struct vulkan_instance instance;
	enum bar_provider bar;
	pthread_mutex_t lock; /* protects copiers; taken before a copier's lock */
	struct vulkan_copier *copiers;
};

struct vulkan_queue {
	pthread_mutex_t lock; /* held to submit; leaf */
	VkQueue handle;
	uint32_t family;
};

/* A kernel that copies inside the device: where that is what copies fastest, the copy engines have
 * a fraction of the memory's rate. Made by the first large copy. */
struct vulkan_kernel {
	pthread_mutex_t lock; /* held to make the pipeline; leaf */
	bool refused;	      /* the driver could not make the pipeline */
	_Atomic(VkPipeline) pipeline;
	VkPipelineLayout layout;
};

/* What a physical device can do; constant. */
struct vulkan_abilities {
	bool software;	      /* the CPU simulates a GPU */
	bool budget;	      /* VK_EXT_memory_budget */
	bool pin;	      /* VK_EXT_external_memory_host */
	bool dedicated;	      /* an import must be dedicated */
	bool kernel;	      /* the queues run kernels, which know buffers by their addresses */
	uint64_t pin_align;   /* of host memory that can be imported */
	uint64_t bytes_max;   /* of an allocation */
	uint32_t allocations; /* at most, at the same time */
	/* The families of queues for copies over the link and for copies inside the device. Equal,
	 * if the driver has no better queue for one of them. */
	uint32_t link_family, inside_family;
	uint32_t n_queues; /* of the link */
};

/* How chunks of a place are allocated, and how the CPU maps them. */
struct vulkan_place {
	bool usable;	   /* the device can have chunks here */
	bool mappable;	   /* the CPU can map them */
	bool direct;	   /* as what they are; else by a second import as map_type */
	uint32_t type;	   /* of the allocation */
	uint32_t map_type; /* equal to type if direct */
};

/* The memory types of a device; constant after the device is opened. */
struct vulkan_types {
	struct vulkan_place places[PLACE_DISK]; /* by enum memory_place */
	uint32_t stage;				/* system memory that the CPU reads fast */
	uint32_t pinned;			/* a bit for each: of imported host memory */
	uint64_t total;				/* bytes of the heap of PLACE_GPU */
	uint64_t window_bytes;			/* of PLACE_GPU that may be mapped at once */
	const char *unmapped;			/* why the CPU cannot map PLACE_GPU; NULL: it can */
};

struct vulkan_device {
	struct device base; /* first */
	struct vulkan *vulkan;
	VkPhysicalDevice physical;
	VkPhysicalDeviceType type;
	char driver[64]; /* "NVIDIA 580.82.07" */
	struct vulkan_abilities can;
	struct vulkan_types types;
	pthread_mutex_t lock; /* held to make and to release the handle; before vulkan.lock */
	unsigned holds;	      /* under lock: chunks, for which there is a handle */
	/* Replaced by a reset, while no copier has resources in the device. VK_NULL_HANDLE: none
	 * was needed yet, or the device was idle. */
	VkDevice handle;
	struct vulkan_calls vk;
	struct vulkan_queue queues[VULKAN_QUEUES_MAX]; /* of the link */
	struct vulkan_queue inside;		       /* if its family is another */
	struct vulkan_kernel kernel;
	atomic_uint next_queue;
	_Atomic uint64_t used;	 /* bytes of this process in chunks of PLACE_GPU */
	atomic_uint allocations; /* that exist now */
};

/* Memory with a buffer over the whole. */
struct vulkan_buffer {
	VkDeviceMemory memory; /* VK_NULL_HANDLE: none, and no buffer either */
	VkBuffer buffer;
	VkDeviceAddress address; /* for kernels; 0: none */
};

struct vulkan_chunk {
	struct chunk base; /* first */
	struct vulkan_buffer buffer;
	/* Of an imported chunk: drivers may refuse to export such memory again. -1: none. */
	int fd;
	VkDeviceMemory window; /* the import that is mapped; VK_NULL_HANDLE: the chunk itself is */
};

static inline bool vulkan_has_inside_queue(const struct vulkan_device *device)
{
	return device->can.inside_family != device->can.link_family;
}

static inline struct vulkan_device *vulkan_device(struct device *device)
{
	return (struct vulkan_device *)device;
}

static inline struct vulkan_chunk *vulkan_chunk(struct chunk *chunk)
{
	return (struct vulkan_chunk *)chunk;
}

static inline struct vulkan *vulkan_of(struct backend *backend)
{
	return (struct vulkan *)backend;
}

/* result.c: 0 or -errno. VK_ERROR_DEVICE_LOST fails the device. Any error is a line in the log with
 * the name of the call, except -ENOSPC, after which callers retry with less. */
int vulkan_result(struct vulkan_device *device, VkResult result, const char *call);

/* devices.c: fills base.devices with the devices that gpus=list selects. */
int vulkan_devices_open(struct vulkan *vulkan, const struct backend_config *config, char *reason,
			size_t size);
void vulkan_device_close(struct vulkan_device *device);
/* The VkDevice with its queues. */
int vulkan_device_create(struct vulkan_device *device);
void vulkan_device_destroy(struct vulkan_device *device);
/* idle_release.c: backend_ops.idle_release; and the VkDevice, from the first chunk to the last. */
int vulkan_idle_release(struct device *device);
int vulkan_device_hold(struct vulkan_device *device);
void vulkan_device_unhold(struct vulkan_device *device);

/* types.c: asks the driver which types a buffer may have. 0, or -ENOTSUP without a line in the log:
 * no type is suitable for files. */
int vulkan_types_find(struct vulkan_device *device);
/* The choice alone: exportable and plain are the types for a buffer in exported memory and for any
 * other buffer, a bit each. */
int vulkan_types_choose(const VkPhysicalDeviceMemoryProperties *memory, uint32_t exportable,
			uint32_t plain, struct vulkan_types *types);

/* Of the types of bits, the best for system memory that the CPU reads as well. */
bool vulkan_system_type_find(struct vulkan_device *device, uint32_t bits, uint32_t *type);

/* abilities.c: 0, or -ENOTSUP with the reason why the device cannot hold files. */
int vulkan_abilities_find(struct vulkan_device *device, char *reason, size_t size);

/* buffer.c: allocates memory with a buffer. handle: VK_EXTERNAL_MEMORY_HANDLE_TYPE_... or 0;
 * source: a VkImportMemory...Info, a VkExportMemoryAllocateInfo, or NULL. The driver's error is not
 * logged. */
VkResult vulkan_buffer_new(struct vulkan_device *device, uint32_t type, uint64_t bytes,
			   VkExternalMemoryHandleTypeFlags handle, const void *source,
			   struct vulkan_buffer *buffer);
void vulkan_buffer_free(struct vulkan_device *device, struct vulkan_buffer *buffer);
/* A buffer without memory. */
VkResult vulkan_buffer_create(struct vulkan_device *device, uint64_t bytes,
			      VkExternalMemoryHandleTypeFlags handle, VkBuffer *buffer);
/* Memory alone. -ENOSPC beyond the number of allocations that the device can have. A descriptor
 * that info imports stays the caller's. */
VkResult vulkan_memory_new(struct vulkan_device *device, const VkMemoryAllocateInfo *info,
			   VkDeviceMemory *memory);
void vulkan_memory_free(struct vulkan_device *device, VkDeviceMemory memory);

/* chunk.c */
int vulkan_chunk_new(struct device *device, enum memory_place place, uint64_t bytes,
		     struct chunk **chunk);
void vulkan_chunk_free(struct chunk *chunk);
int vulkan_chunk_export(struct chunk *chunk, int *fd);
int vulkan_chunk_import(struct device *device, enum memory_place place, uint64_t bytes, int fd,
			struct chunk **chunk);

/* Makes the chunk's buffer of the memory of fd, which stays the caller's. */
int vulkan_memory_import(struct vulkan_chunk *chunk, int fd);
/* The result of an import, without the drivers' peculiarities. */
VkResult vulkan_import_result(VkResult result);

/* reset.c: backend_ops.reset. */
int vulkan_reset(struct device *device);

/* bar.c */
const char *vulkan_bar_name(struct device *device, const char **reason);
int vulkan_bar_map(struct chunk *chunk, void **address);
void vulkan_bar_unmap(struct chunk *chunk, void *address);
uint32_t vulkan_bar_cost(struct device *device);
/* Tests the second import of places that are not mapped directly, and says what the device has to
 * map. A place whose mapping shows other bytes is not mapped, and one of system memory not used. */
void vulkan_bar_open(struct vulkan_device *device);

/* kernel.c: the pipeline, or VK_NULL_HANDLE: copies are the copy engines'. */
VkPipeline vulkan_kernel_get(struct vulkan_device *device);
void vulkan_kernel_close(struct vulkan_device *device);
/* Records a copy of as many of the bytes as the kernel can copy, and returns their number. */
uint64_t vulkan_kernel_record(struct vulkan_device *device, VkCommandBuffer commands,
			      VkDeviceAddress to, VkDeviceAddress from, uint64_t bytes);

/* copy.c */
int vulkan_copier_new(struct backend *backend, struct copier **copier);
void vulkan_copier_free(struct copier *copier);
int vulkan_dma_in(struct copier *copier, struct chunk *to, uint64_t offset, const void *from,
		  size_t bytes);
int vulkan_dma_out(struct copier *copier, void *to, struct chunk *from, uint64_t offset,
		   size_t bytes);
int vulkan_dma_across(struct copier *copier, struct chunk *to, uint64_t to_offset,
		      struct chunk *from, uint64_t from_offset, uint64_t bytes);
int vulkan_dma_zero(struct copier *copier, struct chunk *to, uint64_t offset, uint64_t bytes);
int vulkan_wait(struct copier *copier);

/* pin.c */
int vulkan_pin(struct copier *copier, void *host, size_t bytes);
void vulkan_unpin(struct copier *copier, void *host);

#endif
