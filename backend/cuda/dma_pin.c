/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Host memory that the copy engines may use directly. Registering takes milliseconds and needs a
 * context, so it is left to the first copy. */
#include <errno.h>
#include <stdlib.h>

#include "backend/cuda/dma.h"
#include "common/defer.h"

int cuda_pin(struct copier *base, void *host, size_t bytes)
{
	struct cuda_copier *copier = cuda_copier(base);
	struct dma_pin *pin = calloc(1, sizeof(*pin));
	if (!pin)
		return -ENOMEM;
	LOCKED(&copier->lock);
	*pin = (struct dma_pin){.next = copier->pins, .base = host, .bytes = bytes};
	copier->pins = pin;
	return 0;
}

static void pin_register(struct dma_pin *pin, struct cuda_device *device)
{
	const struct cuda_driver *cu = &device->cuda->cu;
	char name[DRIVER_ERROR_NAME_MAX];

	/* Portable: one registration serves every device's context. */
	gm_CUresult result =
	    cu->cuMemHostRegister(pin->base, pin->bytes, GM_CU_MEMHOSTREGISTER_PORTABLE);
	if (result == GM_CUDA_SUCCESS) {
		pin->device = device;
		return;
	}
	if (driver_error(result).fatal) {
		cuda_result(device, result, "cuMemHostRegister");
		return;
	}
	pin->refused = true;
	log_warn("gpu%u: copies of %zu KiB of buffers take a detour through staging memory: "
		 "cuMemHostRegister: %s",
		 device->base.index, pin->bytes >> 10, driver_error_name(cu, result, name));
}

bool dma_is_pinned(struct cuda_copier *copier, struct cuda_device *device, const void *host,
		   size_t bytes)
{
	for (struct dma_pin *pin = copier->pins; pin; pin = pin->next) {
		const char *first = host;
		if (first < pin->base || first + bytes > pin->base + pin->bytes)
			continue;
		if (!pin->device && !pin->refused)
			pin_register(pin, device);
		return pin->device;
	}
	return false;
}

static void pin_unregister(struct dma_pin *pin)
{
	if (!pin->device)
		return;
	cuda_context_for_giving(pin->device);
	pin->device->cuda->cu.cuMemHostUnregister(pin->base);
	pin->device = NULL;
}

static void pin_close(struct dma_pin *pin)
{
	pin_unregister(pin);
	free(pin);
}

void dma_unregister(struct cuda_copier *copier, struct cuda_device *device)
{
	for (struct dma_pin *pin = copier->pins; pin; pin = pin->next)
		if (pin->device == device)
			pin_unregister(pin);
}

void cuda_unpin(struct copier *base, void *host)
{
	struct cuda_copier *copier = cuda_copier(base);
	struct dma_pin **link = &copier->pins;

	LOCKED(&copier->lock);
	while (*link && (*link)->base != host)
		link = &(*link)->next;
	struct dma_pin *pin = *link;
	if (!pin)
		return;
	/* The owner frees the memory next: no copy engine may still be at it. The outcome stays
	 * there for the owner's own wait. */
	copier->error = dma_wait(copier);
	*link = pin->next;
	pin_close(pin);
}

void dma_unpin_all(struct cuda_copier *copier)
{
	while (copier->pins) {
		struct dma_pin *pin = copier->pins;
		copier->pins = pin->next;
		pin_close(pin);
	}
}
