/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Addresses of a file's memory, for GPUs and for CPUs. All code that knows a vendor's driver is
 * behind struct client_gpu_ops; the library and the command call these functions alone. */
#ifndef CLIENT_GPU_GPU_H
#define CLIENT_GPU_GPU_H

#include <stdint.h>
#include <sys/types.h>

#include "client/core/answer.h"
#include "client/core/range.h"

struct client_gpu_ops;

/* The device address of a file. */
struct client_device_map {
	const struct client_gpu_ops *vendor; /* of the driver; NULL: not mapped */
	uint64_t base;
	size_t mapped;
	size_t room; /* set before the mapping: least bytes of addresses to reserve */
	void *state; /* the vendor's */
};

/* The CPU address of a file. */
struct client_host_map {
	struct client_range range; /* base NULL: not mapped */
	void *state;		   /* the vendor's; NULL: mapped by mmap(2) */
};

/* The functions of a vendor's driver for files. Callers hold the file's lock, unless a function
 * says otherwise. A function that returns an int gives 0, or -errno with client_error_text. */
struct client_gpu_ops {
	const char *name;
	uint32_t kinds; /* of memory (GPUMEM_KIND_*) that these functions map: 1 << kind each */

	/* Maps the layout for the device of the calling thread's current context; if the layout is
	 * mapped already, gives that device access to the mapping. */
	int (*device_map)(struct client_device_map *map, const struct client_layout *layout);
	/* Maps the chunks that the layout has gained, behind the mapped chunks. -ENOSPC: no room is
	 * left there. After an error the map is unchanged. */
	int (*device_extend)(struct client_device_map *map, const struct client_layout *layout);
	/* The map is empty afterwards, also after an error. */
	int (*device_unmap)(struct client_device_map *map, const struct client_layout *layout);

	/* Imports the chunks of a layout that device_extend will map into this map, which takes
	 * most of its time; device_cancel undoes that. NULL: there is nothing to prepare. */
	int (*device_prepare)(const struct client_device_map *map,
			      const struct client_layout *layout);
	void (*device_cancel)(const struct client_device_map *map,
			      const struct client_layout *layout);

	/* Unmaps the chunks of the layout, and keeps the addresses for device_extend. NULL: a map
	 * cannot be made again at its addresses. */
	int (*device_park)(struct client_device_map *map, const struct client_layout *layout);

	/* The driver's number of the file's GPU. NULL: not known. */
	int (*device_number)(const struct client_device_map *map);

	/* Copies to an address of any GPU, from an address in a map that the current context's
	 * device reaches, on a stream of the driver (NULL: the default stream), and waits for the
	 * stream. No lock. -EBUSY: the stream records a graph, or the
	 * copy is small and the stream has other work. NULL: there is no driver. */
	int (*device_copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);

	/* Copies to memory of the CPU, from an address in a map that the current context's device
	 * reaches, and waits for this copy alone. No lock. NULL: there is no driver. */
	int (*host_copy)(void *to, uint64_t from, size_t bytes);
	/* Whether the calling thread has a current context, or the program has loaded a driver that
	 * has no current context. Loads no driver, and initialises none. NULL: there is no driver.
	 */
	bool (*has_context)(void);

	/* Map, extend and unmap for a layout of system memory. NULL: the implementation has no
	 * driver. */
	int (*system_map)(struct client_device_map *map, const struct client_layout *layout);
	int (*system_extend)(struct client_device_map *map, const struct client_layout *layout);
	int (*system_unmap)(struct client_device_map *map);

	/* In a child of fork(2): frees the state of a map, and leaves the driver alone. Any kind of
	 * layout. */
	void (*device_forget)(struct client_device_map *map);

	/* Maps the layout for the CPU, unless it is mapped. file: any descriptor of the file, to
	 * compare the mapping's bytes with the file's. */
	int (*host_map)(struct client_host_map *map, const struct client_layout *layout, int file);
	int (*host_extend)(struct client_host_map *map, const struct client_layout *layout);
	void (*host_unmap)(struct client_host_map *map);
	/* Unmaps the file, and keeps the addresses for host_extend. If another thread took an
	 * address just then, the map is empty afterwards. */
	void (*host_park)(struct client_host_map *map);
	/* In a child of fork(2). A mapping that the child has inherited stays. */
	void (*host_forget)(struct client_host_map *map);
	/* The name of the way of a mapped file: "dmabuf", "gdrcopy", "vulkan", "mmap". */
	const char *(*host_provider)(const struct client_host_map *map);
	/* Shows stores through the CPU address to all GPUs. Either map may be empty. NULL: the
	 * vendor's GPUs need no flush. */
	void (*flush)(const struct client_host_map *host, const struct client_device_map *device);
};

/* The functions for a kind of memory, which the protocol must have. */
const struct client_gpu_ops *client_gpu_ops(uint32_t kind);

/* Whether the calling thread has a current context of any vendor's driver. */
bool client_gpu_has_context(void);

/* System memory for the driver whose GPU the calling thread uses. Calls system_map of each vendor
 * until one succeeds; else the error of the first vendor whose driver is there. */
int client_gpu_system_map(struct client_device_map *map, const struct client_layout *layout);

/* system.c: system memory and simulated GPUs. */
extern const struct client_gpu_ops client_gpu_system;
/* cuda_ops.c: NVIDIA's GPUs. */
extern const struct client_gpu_ops client_gpu_cuda;
/* vulkan.c: memory that Vulkan allocated, of any vendor's GPU. */
extern const struct client_gpu_ops client_gpu_vulkan;
/* hip.c, levelzero.c: device addresses of such memory, on GPUs of AMD and Intel. No kinds. */
extern const struct client_gpu_ops client_gpu_hip, client_gpu_levelzero;

#endif
