/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A BAR mapping by GDRCopy: libgdrapi.so.2, and below version 2.6 its kernel module gdrdrv. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/bar_way.h"
#include "backend/cuda/driver/driver.h"
#include "common/cleanup.h"

/* Estimated: like an import into Vulkan, pinning walks the pages in the driver. */
#define COST_NS_PER_MIB 10000

#define GDR_FIELD(need, field, symbol, type, arguments) type(*field) arguments;
struct gdr_library {
	void *library;
	GDR_FUNCTIONS(GDR_FIELD)
};

#define GDR_ROW(need, field, symbol, type, arguments)                                              \
	{#symbol, offsetof(struct gdr_library, field), need},
static const struct driver_symbol gdr_symbols[] = {GDR_FUNCTIONS(GDR_ROW)};

struct gdr_state {
	struct gdr_library api;
	gm_gdr_t gdr;
	pthread_mutex_t lock; /* held in every call, because the library is not thread-safe */
};

/* One mapped chunk. */
struct gdr_mapping {
	gm_gdr_mh_t handle;
	void *base; /* from gdr_map; may begin before the chunk */
	size_t bytes;
};

static int gdrcopy_open(const struct bar_device *device, void **state, char *reason)
{
	(void)device;
	AUTO_FREE struct gdr_state *new_state = calloc(1, sizeof(*new_state));
	if (!new_state)
		return -ENOMEM;
	int rc =
	    driver_load("libgdrapi.so.2", gdr_symbols, sizeof(gdr_symbols) / sizeof(gdr_symbols[0]),
			&new_state->api, reason, BAR_REASON_MAX, &new_state->api.library);
	if (rc < 0)
		return rc;
	new_state->gdr = new_state->api.gdr_open();
	if (!new_state->gdr) {
		snprintf(reason, BAR_REASON_MAX, "gdr_open fails: is the module gdrdrv loaded?");
		return -ENODEV;
	}
	pthread_mutex_init(&new_state->lock, NULL);
	*state = new_state;
	new_state = NULL;
	return 0;
}

static void gdrcopy_close(void *arg)
{
	struct gdr_state *state = arg;

	state->api.gdr_close(state->gdr);
	pthread_mutex_destroy(&state->lock);
	free(state);
}

/* Under the lock. 0, or a positive errno with the failed call in *call. */
static int gdr_mapping_make(struct gdr_state *state, const struct bar_source *source,
			    struct gdr_mapping *mapping, void **address, const char **call)
{
	const struct gdr_library *api = &state->api;

	*call = "gdr_pin_buffer";
	int error =
	    api->gdr_pin_buffer(state->gdr, source->address, source->bytes, 0, 0, &mapping->handle);
	if (error)
		return error;
	*call = "gdr_map";
	error = api->gdr_map(state->gdr, mapping->handle, &mapping->base, mapping->bytes);
	if (error)
		goto unpin;
	*call = "gdr_get_info";
	gm_gdr_info_v2_t info;
	error = api->gdr_get_info(state->gdr, mapping->handle, &info);
	if (error)
		goto unmap;
	*address = (char *)mapping->base + (source->address - info.va);
	return 0;
unmap:
	api->gdr_unmap(state->gdr, mapping->handle, mapping->base, mapping->bytes);
unpin:
	api->gdr_unpin_buffer(state->gdr, mapping->handle);
	return error;
}

static int gdrcopy_map(void *arg, const struct bar_source *source, void *at, void **address,
		       void **mapping, char *reason)
{
	(void)at; /* the library chooses the address */
	struct gdr_state *state = arg;
	AUTO_FREE struct gdr_mapping *new_mapping = calloc(1, sizeof(*new_mapping));
	if (!new_mapping)
		return -ENOMEM;
	new_mapping->bytes = source->bytes;
	const char *call;
	scoped_lock(&state->lock);
	int error = gdr_mapping_make(state, source, new_mapping, address, &call);
	if (error) {
		snprintf(reason, BAR_REASON_MAX, "%s: %s", call, strerror(error));
		return error == ENOMEM ? -ENOSPC : -error;
	}
	*mapping = new_mapping;
	new_mapping = NULL;
	return 0;
}

static void gdrcopy_unmap(void *arg, void *address, uint64_t bytes, void *mapping)
{
	struct gdr_state *state = arg;
	struct gdr_mapping *gdr_mapping = mapping;

	(void)address;
	(void)bytes;
	scoped_lock(&state->lock);
	state->api.gdr_unmap(state->gdr, gdr_mapping->handle, gdr_mapping->base,
			     gdr_mapping->bytes);
	state->api.gdr_unpin_buffer(state->gdr, gdr_mapping->handle);
	free(gdr_mapping);
}

const struct bar_way cuda_bar_gdrcopy = {
    .name = "gdrcopy",
    .needs = BAR_NEEDS_CUDA,
    .cost = COST_NS_PER_MIB,
    .open = gdrcopy_open,
    .close = gdrcopy_close,
    .map = gdrcopy_map,
    .unmap = gdrcopy_unmap,
};
