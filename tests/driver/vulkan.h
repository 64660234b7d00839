/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Inside the stand-in libvulkan.so.1. */
#ifndef DRIVER_VULKAN_H
#define DRIVER_VULKAN_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <vulkan/vulkan.h>

#include "tests/driver/helpers.h"

struct VkInstance_T {
	VkPhysicalDevice physical; /* array */
	uint32_t n;
};

struct VkPhysicalDevice_T {
	bool software; /* a renderer on the CPU, listed first as a trap: no program wants the
			  renderer */
	unsigned gpu;
};

/* The number of descriptors that a device of the real driver keeps open. */
#define CLIENT_DESCRIPTORS 20

struct VkDevice_T {
	unsigned gpu;
	int client[CLIENT_DESCRIPTORS]; /* all of the same file */
	ino_t client_file;
	int closed; /* the watcher reads the end of client_file here */
	pthread_t watcher;
	sem_t apart;		       /* posted when the watcher has closed its copies of client */
	pthread_mutex_t lock;	       /* protects list */
	struct VkDeviceMemory_T *list; /* the mapped memory */
	bool has_memory_fd;	       /* VK_KHR_external_memory_fd was enabled */
	atomic_uint memories;
};

/* The memory types, in the order in which a careless program would take them. */
enum memory_type {
	TYPE_SYSTEM, /* host visible and coherent, but not memory of the GPU */
	TYPE_DEVICE, /* memory of the GPU, cannot be mapped */
	TYPE_SYSTEM_CACHED,
	TYPE_DEVICE_MAPPABLE, /* the only useful type */
	N_MEMORY_TYPES
};

/* Returns 0, or -1 if the process has no descriptors left. */
int vulkan_client_open(VkDevice device);
void vulkan_client_close(VkDevice device);
/* Called in every call on a device. */
void vulkan_client_check(VkDevice device);
void vulkan_refuse(const char *what);

struct VkDeviceMemory_T {
	uint32_t magic;
	VkDevice device;
	enum memory_type type;
	uint64_t size;
	int fd;
	ino_t inode;
	void *mapped; /* the address from vkMapMemory, or NULL */
	uint64_t mapped_size;
	struct VkDeviceMemory_T *next; /* in the device's list */
};

/* vulkan_memory.c */
void vulkan_memory_types(VkPhysicalDeviceMemoryProperties *properties);
PFN_vkVoidFunction vulkan_memory_function(const char *name, bool has_memory_fd);

struct vulkan_function {
	const char *name;
	PFN_vkVoidFunction function;
};

#endif
