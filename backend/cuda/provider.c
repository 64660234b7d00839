/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Opening and closing the CUDA provider. */
#include "backend/cuda/provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/providers.h"
#include "common/cleanup.h"
#include "common/log.h"

static int report_unusable(const struct backend_config *config, const char *reason)
{
	if (config->reason)
		snprintf(config->reason, config->reason_bytes, "%s", reason);
	else
		log_error("CUDA cannot be used: %s", reason);
	return -ENODEV;
}

static void cuda_close(struct backend *base)
{
	struct cuda *cuda = cuda_of(base);

	peers_close(&cuda->peers);
	for (unsigned i = 0; i < base->n_devices; i++)
		cuda_device_close(cuda_device(base->devices[i]));
	nvml_close(cuda);
	pthread_mutex_destroy(&cuda->copiers.lock);
	pthread_rwlock_destroy(&cuda->pins.lock);
	pthread_mutex_destroy(&cuda->pins.making);
	free(cuda);
}

static int driver_start(struct cuda *cuda, const struct backend_config *config)
{
	char reason[256];

	/* CUDA's default order is fastest first; gpu0 must be nvidia-smi's GPU 0. */
	setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	if (driver_load_cuda(&cuda->cu, reason, sizeof(reason)) < 0)
		return report_unusable(config, reason);
	/* After the daemon's fork: in a child of a process that called cuInit every call fails. */
	gm_CUresult result = cuda->cu.cuInit(0);
	if (result == GM_CUDA_SUCCESS)
		return 0;
	char name[DRIVER_ERROR_NAME_MAX];
	snprintf(reason, sizeof(reason), "cuInit: %s", driver_error_name(&cuda->cu, result, name));
	return report_unusable(config, reason);
}

static void version_describe(struct cuda *cuda)
{
	int version;

	if (cuda->base.version[0] || cuda->cu.cuDriverGetVersion(&version) != GM_CUDA_SUCCESS)
		return;
	snprintf(cuda->base.version, sizeof(cuda->base.version), "CUDA %d.%d", version / 1000,
		 version % 1000 / 10);
}

static int cuda_open(const struct backend_config *config, struct backend **backend)
{
	struct cuda *cuda = calloc(1, sizeof(*cuda));
	if (!cuda)
		return -ENOMEM;
	cuda->base.ops = &backend_cuda_ops;
	cuda->base.name = "cuda";
	cuda->bar = config->bar;
	peers_open(&cuda->peers);
	pthread_mutex_init(&cuda->copiers.lock, NULL);
	pthread_mutex_init(&cuda->pins.making, NULL);
	pthread_rwlock_init(&cuda->pins.lock, NULL);
	int rc = driver_start(cuda, config);
	if (rc == 0) {
		nvml_open(cuda);
		version_describe(cuda);
		rc = cuda_devices_open(cuda, config);
	}
	if (rc == 0 && cuda->base.n_devices == 0)
		rc = report_unusable(config, "there is no usable GPU");
	if (rc < 0) {
		cuda_close(&cuda->base);
		return rc;
	}
	*backend = &cuda->base;
	return 0;
}

const struct backend_ops backend_cuda_ops = {
    .name = "cuda",
    .handle = CHUNK_CUDA_VMM,
    .open = cuda_open,
    .close = cuda_close,
    .memory = cuda_memory,
    .idle_release = cuda_idle_release,
    .reset = cuda_reset,
    .bar_name = cuda_bar_name,
    .chunk_new = cuda_chunk_new,
    .chunk_free = cuda_chunk_free,
    .chunk_export = cuda_chunk_export,
    .chunk_import = cuda_chunk_import,
    .chunk_import_foreign = cuda_chunk_import_foreign,
    .copier_new = cuda_copier_new,
    .copier_free = cuda_copier_free,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .pin_for_all = cuda_pin_for_all,
    .unpin_for_all = cuda_unpin_for_all,
    .dma_in = cuda_dma_in,
    .dma_out = cuda_dma_out,
    .dma_across = cuda_dma_across,
    .dma_zero = cuda_dma_zero,
    .wait = cuda_wait,
    .bar_map = cuda_bar_map,
    .bar_unmap = cuda_bar_unmap,
    .bar_cost = cuda_bar_cost,
};
