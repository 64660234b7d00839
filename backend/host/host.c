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
	struct host_device *simulated = &host->devices[index];
	struct device *device = &simulated->device;

	simulated->bar_off = config->bar == BAR_OFF;
	device->backend = &host->backend;
	device->index = index;
	snprintf(device->label, sizeof(device->label), "gpu%u", index);
	snprintf(device->name, sizeof(device->name), "host-backed GPU %u", index);
	snprintf(device->uuid, sizeof(device->uuid), "GPU-00000000-0000-4000-8000-%012x", index);
	device->total = config->host_bytes;
	device->host_memory = true;
	device->bar_bytes = simulated->bar_off ? 0 : config->host_bytes;
}

static int devices_select(struct host_backend *host, const struct backend_config *config)
{
	struct backend *backend = &host->backend;
	struct device *devices[BACKEND_DEVICES_MAX];
	uint64_t selected = 0;

	for (unsigned i = 0; i < config->host_gpus; i++) {
		device_simulate(host, i, config);
		devices[i] = &host->devices[i].device;
	}
	int rc = backend_select_gpus(config->gpus, devices, config->host_gpus, &selected);

	for (unsigned i = 0; rc == 0 && i < config->host_gpus; i++) {
		if (!(selected >> i & 1))
			continue;
		devices[i]->slot = backend->n_devices;
		backend->devices[backend->n_devices++] = devices[i];
	}
	return rc;
}

static int host_open(const struct backend_config *config, struct backend **backend)
{
	if (!config->host_gpus || config->host_gpus > BACKEND_DEVICES_MAX || !config->host_bytes) {
		log_error(
		    "the host backend simulates 1 to %d GPUs of more than 0 bytes, not %u of %llu",
		    BACKEND_DEVICES_MAX, config->host_gpus, (unsigned long long)config->host_bytes);
		return -EINVAL;
	}
	struct host_backend *host = calloc(1, sizeof(*host));
	if (!host)
		return -ENOMEM;
	host->backend.ops = &backend_host_ops;
	host->backend.name = backend_host_ops.name;
	int rc = devices_select(host, config);

	if (rc < 0)
		free(host);
	else
		*backend = &host->backend;
	return rc;
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

static const char *host_bar_name(struct device *device, const char **reason)
{
	if (!host_device(device)->bar_off)
		return "direct";
	*reason = "turned off (bar=off)";
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
    .chunk_import_foreign = host_chunk_import_foreign,
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
