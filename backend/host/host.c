/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/host/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/providers.h"
#include "common/log.h"

struct host_backend {
	struct backend backend;
	struct host_device devices[BACKEND_DEVICES_MAX];
};

static void device_simulate(struct host_backend *host, unsigned index,
			    const struct backend_config *config)
{
	struct backend *backend = &host->backend;
	struct host_device *simulated = &host->devices[backend->n_devices];
	struct device *device = &simulated->device;

	simulated->bar_off = config->bar == BAR_OFF;
	device->backend = backend;
	device->index = index;
	device->slot = backend->n_devices;
	snprintf(device->name, sizeof(device->name), "host-backed GPU %u", index);
	snprintf(device->uuid, sizeof(device->uuid), "GPU-00000000-0000-4000-8000-%012x", index);
	device->total = config->host_bytes;
	device->host_memory = true;
	device->bar_bytes = simulated->bar_off ? 0 : config->host_bytes;
	backend->devices[backend->n_devices++] = device;
}

static int host_open(const struct backend_config *config, struct backend **backend)
{
	unsigned indices[BACKEND_DEVICES_MAX], n;

	if (!config->host_gpus || config->host_gpus > BACKEND_DEVICES_MAX || !config->host_bytes) {
		log_error(
		    "the host backend simulates 1 to %d GPUs of more than 0 bytes, not %u of %llu",
		    BACKEND_DEVICES_MAX, config->host_gpus, (unsigned long long)config->host_bytes);
		return -EINVAL;
	}
	int rc = backend_parse_gpus(config->gpus, config->host_gpus, indices, &n);
	if (rc < 0)
		return rc;

	struct host_backend *host = calloc(1, sizeof(*host));
	if (!host)
		return -ENOMEM;
	host->backend.ops = &backend_host_ops;
	host->backend.name = backend_host_ops.name;
	for (unsigned i = 0; i < n; i++)
		device_simulate(host, indices[i], config);
	*backend = &host->backend;
	return 0;
}

static void host_close(struct backend *backend)
{
	free(backend);
}

static int host_memory(struct device *device, struct device_memory *memory)
{
	uint64_t used = atomic_load(&host_device(device)->used);

	*memory = (struct device_memory){
	    .total = device->total,
	    .free = device->total > used ? device->total - used : 0,
	};
	return 0;
}

static const char *host_bar_name(struct device *device, const char **why)
{
	if (!host_device(device)->bar_off)
		return "direct";
	*why = "turned off (bar=off)";
	return "none";
}

static uint32_t host_bar_cost(struct device *device)
{
	(void)device;
	return 0;
}

const struct backend_ops backend_host_ops = {
    .name = "host",
    .handle = CHUNK_MEMFD,
    .open = host_open,
    .close = host_close,
    .memory = host_memory,
    .bar_name = host_bar_name,
    .chunk_new = host_chunk_new,
    .chunk_free = host_chunk_free,
    .chunk_export = host_chunk_export,
    .chunk_import = host_chunk_import,
    .copier_new = host_copier_new,
    .copier_free = host_copier_free,
    .pin = host_pin,
    .unpin = host_unpin,
    .dma_in = host_dma_in,
    .dma_out = host_dma_out,
    .dma_across = host_dma_across,
    .dma_zero = host_dma_zero,
    .wait = host_wait,
    .bar_map = host_bar_map,
    .bar_unmap = host_bar_unmap,
    .bar_cost = host_bar_cost,
};
