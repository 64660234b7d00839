/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Host memory that copy engines use directly. Registering takes milliseconds and needs a context,
 * so the first copy does it. */
#include <errno.h>
#include <stdlib.h>

#include "backend/cuda/dma.h"
#include "common/cleanup.h"
#include "common/log.h"

int cuda_pin(struct copier *base, void *host, size_t bytes)
{
	struct cuda_copier *copier = cuda_copier(base);
	struct dma_pin *pin = calloc(1, sizeof(*pin));
	if (!pin)
		return -ENOMEM;
	scoped_lock(&copier->lock);
	*pin = (struct dma_pin){.next = copier->pins, .base = host, .bytes = bytes};
	copier->pins = pin;
	return 0;
}

/* Portable: a registration serves the contexts of all devices. The device's context is current. */
static gm_CUresult memory_register(struct cuda_device *device, void *base, size_t bytes)
{
	gm_CUresult result =
	    device->cuda->cu.cuMemHostRegister(base, bytes, GM_CU_MEMHOSTREGISTER_PORTABLE);

	if (driver_error(result).fatal)
		cuda_result(device, result, "cuMemHostRegister");
	return result;
}

static void pin_try(struct dma_pin *pin, struct cuda_device *device)
{
	char name[DRIVER_ERROR_NAME_MAX];
	gm_CUresult result = memory_register(device, pin->base, pin->bytes);

	if (result == GM_CUDA_SUCCESS)
		pin->device = device;
	if (result == GM_CUDA_SUCCESS || driver_error(result).fatal)
		return;
	pin->refused = true;
	log_warn("%s: copies of %zu KiB of buffers go through staging memory: "
		 "cuMemHostRegister: %s",
		 device->base.label, pin->bytes >> 10,
		 driver_error_name(&device->cuda->cu, result, name));
}

static struct dma_pin *pin_with(struct dma_pin *list, const char *host, size_t bytes)
{
	while (list && (host < list->base || host + bytes > list->base + list->bytes))
		list = list->next;
	return list;
}

static enum dma_pinned pinned_for_all(struct pins *pins, const void *host, size_t bytes)
{
	pthread_rwlock_rdlock(&pins->lock);
	const struct dma_pin *pin = pin_with(pins->list, host, bytes);
	enum dma_pinned pinned = !pin ? DMA_NOT_PINNED : pin->device ? DMA_PINNED : DMA_PIN_GONE;
	pthread_rwlock_unlock(&pins->lock);
	return pinned;
}

enum dma_pinned dma_pinned(struct cuda_copier *copier, struct cuda_device *device, const void *host,
			   size_t bytes)
{
	struct dma_pin *pin = pin_with(copier->pins, host, bytes);

	if (!pin)
		return pinned_for_all(&device->cuda->pins, host, bytes);
	if (!pin->device && !pin->refused)
		pin_try(pin, device);
	return pin->device ? DMA_PINNED : DMA_NOT_PINNED;
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

/* The link to the pin that begins at host, or the list's end. */
static struct dma_pin **pin_link(struct dma_pin **link, const void *host)
{
	while (*link && (*link)->base != host)
		link = &(*link)->next;
	return link;
}

static void pins_unregister(struct dma_pin *list, const struct cuda_device *device)
{
	for (; list; list = list->next)
		if (list->device == device)
			pin_unregister(list);
}

void dma_unregister(struct cuda_copier *copier, struct cuda_device *device)
{
	pins_unregister(copier->pins, device);
}

void cuda_unpin(struct copier *base, void *host)
{
	struct cuda_copier *copier = cuda_copier(base);

	scoped_lock(&copier->lock);
	struct dma_pin **link = pin_link(&copier->pins, host), *pin = *link;
	if (!pin)
		return;
	/* The owner frees the memory next: wait until no copy engine uses it. The error stays for
	 * the owner's own wait. */
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

/* pins->making and the device are held; the device's context is current. */
static int pin_for_all(struct pins *pins, struct cuda_device *device, void *host, size_t bytes)
{
	struct dma_pin *pin = pin_with(pins->list, host, bytes), *new_pin = NULL;

	if (pin && pin->device)
		return 0;
	if (!pin) /* otherwise the registration was lost with the earlier context */
		pin = new_pin = calloc(1, sizeof(*pin));
	if (!pin)
		return -ENOMEM;
	if (new_pin)
		*new_pin = (struct dma_pin){.base = host, .bytes = bytes};
	if (memory_register(device, pin->base, pin->bytes) != GM_CUDA_SUCCESS) {
		free(new_pin);
		return -ENOMEM;
	}
	pthread_rwlock_wrlock(&pins->lock);
	pin->device = device;
	if (new_pin) {
		new_pin->next = pins->list;
		pins->list = new_pin;
	}
	pthread_rwlock_unlock(&pins->lock);
	return 0;
}

int cuda_pin_for_all(struct device *base, void *host, size_t bytes)
{
	struct cuda_device *device = cuda_device(base);
	struct pins *pins = &device->cuda->pins;

	if (pinned_for_all(pins, host, bytes) == DMA_PINNED)
		return 0;
	cuda_hold(device);
	int rc = dma_context_use(device);
	if (rc == 0) {
		scoped_lock(&pins->making);
		rc = pin_for_all(pins, device, host, bytes);
	}
	cuda_drop(device);
	return rc;
}

void cuda_unpin_for_all(struct device *device, void *host)
{
	struct pins *pins = &cuda_device(device)->cuda->pins;

	scoped_lock(&pins->making);
	pthread_rwlock_wrlock(&pins->lock);
	struct dma_pin **link = pin_link(&pins->list, host), *pin = *link;
	if (pin)
		*link = pin->next;
	pthread_rwlock_unlock(&pins->lock);
	if (pin)
		pin_close(pin);
}

void dma_unregister_for_all(struct cuda_device *device)
{
	struct pins *pins = &device->cuda->pins;

	scoped_lock(&pins->making);
	pthread_rwlock_wrlock(&pins->lock);
	pins_unregister(pins->list, device);
	pthread_rwlock_unlock(&pins->lock);
}
