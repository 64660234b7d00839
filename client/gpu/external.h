/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Device addresses by drivers that import the memory of another interface: the driver chooses the
 * address of each descriptor, so that only a file of one chunk is contiguous. */
#ifndef CLIENT_GPU_EXTERNAL_H
#define CLIENT_GPU_EXTERNAL_H

#include "client/gpu/gpu.h"

/* A device of the driver, and the memory that the device has imported. */
struct external_memory {
	int number; /* of the device, in the driver's order */
	void *device, *context;
	void *handle; /* of the import */
	uint64_t address;
};

/* The functions of a driver. They give 0, or -errno with client_error_text. */
struct external_driver {
	const struct client_gpu_ops *ops;
	const char *name; /* "HIP" */
	/* Finds the device with this UUID. -ENODEV: the driver is not there, or has no device.
	 * -ENXIO: the driver has other devices. */
	int (*find)(const uint8_t uuid[16], struct external_memory *memory);
	/* Whether the calling thread's current device can use the memory. -ENOTSUP: no. NULL: there
	 * is no current device. */
	int (*reach)(const struct external_memory *memory);
	int (*import)(struct external_memory *memory, int fd, uint64_t bytes);
	/* Waits for the device's work with the memory. */
	int (*release)(const struct external_memory *memory);
};

/* As the functions of client_gpu_ops. */
int external_map(const struct external_driver *driver, struct client_device_map *map,
		 const struct client_layout *layout);
int external_extend(struct client_device_map *map, const struct client_layout *layout);
int external_unmap(const struct external_driver *driver, struct client_device_map *map);
void external_forget(struct client_device_map *map);
int external_number(const struct client_device_map *map);

/* Whether a chunk's descriptor is a dma-buf, as the opaque descriptors of Mesa's drivers are. */
bool external_is_dmabuf(int fd);

/* Whether a driver's device is the GPU with Vulkan's deviceUUID. uuid: the driver's, or NULL; pci:
 * "0000:c3:00.0", or "". */
#define EXTERNAL_PCI_MAX 32
bool external_is_gpu(const uint8_t file_uuid[16], const uint8_t *uuid, const char *pci);

#endif
