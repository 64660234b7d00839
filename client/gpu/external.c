/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/gpu/external.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/vfs.h>

#include "client/core/error.h"

bool external_is_dmabuf(int fd)
{
	struct statfs st;

	return fstatfs(fd, &st) == 0 && st.f_type == DMA_BUF_MAGIC;
}

/* Mesa's driver for AMD makes the UUID of the PCI address, a word for each part
 * (ac_compute_device_uuid in Mesa's ac_gpu_info.c), and HIP has a UUID of another kind. Intel's
 * Vulkan and Level Zero have the same UUID. */
bool external_is_gpu(const uint8_t file_uuid[16], const uint8_t *uuid, const char *pci)
{
	char address[EXTERNAL_PCI_MAX];
	uint32_t words[4];

	if (uuid && memcmp(uuid, file_uuid, 16) == 0)
		return true;
	memcpy(words, file_uuid, sizeof(words));
	snprintf(address, sizeof(address), "%04x:%02x:%02x.%x", words[0], words[1], words[2],
		 words[3]);
	return strcasecmp(address, pci) == 0;
}

static int layout_check(const struct external_driver *driver, const struct client_device_map *map,
			const struct client_layout *layout)
{
	if (map->room > layout->bytes)
		return client_fail(ENOTSUP, "%s has no range of addresses into which a file grows",
				   driver->name);
	if (layout->n_chunks > 1)
		return client_fail(ENOTSUP,
				   "the file has %u chunks, and %s maps each at an address of its "
				   "own: give the file its size before its bytes (fallocate, "
				   "gpumem_create), or import the pieces of gpumem_export",
				   layout->n_chunks, driver->name);
	return 0;
}

static int memory_map(const struct external_driver *driver, struct client_device_map *map,
		      const struct client_layout *layout, struct external_memory *memory)
{
	int rc = driver->find(layout->uuid, memory);

	if (rc == 0 && driver->reach)
		rc = driver->reach(memory);
	if (rc == 0)
		rc = layout_check(driver, map, layout);
	return rc < 0 ? rc : driver->import(memory, layout->chunks[0].fd, layout->bytes);
}

int external_map(const struct external_driver *driver, struct client_device_map *map,
		 const struct client_layout *layout)
{
	struct external_memory *memory = map->state;

	if (memory)
		return driver->reach ? driver->reach(memory) : 0;
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return client_fail(ENOMEM, "no memory");
	int rc = memory_map(driver, map, layout, memory);
	if (rc < 0)
		free(memory);
	else
		*map = (struct client_device_map){.vendor = driver->ops,
						  .base = memory->address,
						  .mapped = layout->bytes,
						  .state = memory};
	return rc;
}

int external_extend(struct client_device_map *map, const struct client_layout *layout)
{
	if (layout->bytes == map->mapped)
		return 0;
	return client_fail(ENOSPC,
			   "the file has more chunks than the one that is mapped: %s maps "
			   "each at an address of its own",
			   map->vendor->name);
}

int external_unmap(const struct external_driver *driver, struct client_device_map *map)
{
	int rc = driver->release(map->state);

	external_forget(map);
	return rc;
}

void external_forget(struct client_device_map *map)
{
	free(map->state);
	*map = (struct client_device_map){0};
}

int external_number(const struct client_device_map *map)
{
	return ((const struct external_memory *)map->state)->number;
}
