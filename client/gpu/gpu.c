/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/gpu/gpu.h"

#include <errno.h>

#include "client/core/error.h"

/* A row for each vendor. */
static const struct client_gpu_ops *const vendor_ops[] = {&client_gpu_cuda, &client_gpu_vulkan,
							  &client_gpu_system};
#define ROWS (sizeof(vendor_ops) / sizeof(vendor_ops[0]))

const struct client_gpu_ops *client_gpu_ops(uint32_t kind)
{
	for (unsigned i = 0; i < ROWS; i++)
		if (vendor_ops[i]->kinds >> kind & 1)
			return vendor_ops[i];
	return &client_gpu_system;
}

bool client_gpu_has_context(void)
{
	for (unsigned i = 0; i < ROWS; i++)
		if (vendor_ops[i]->has_context && vendor_ops[i]->has_context())
			return true;
	return false;
}

int client_gpu_system_map(struct client_device_map *map, const struct client_layout *layout)
{
	int rc = client_fail(ENODEV, "no driver of a GPU");

	for (unsigned i = 0; i < ROWS && rc == -ENODEV; i++)
		if (vendor_ops[i]->system_map)
			rc = vendor_ops[i]->system_map(map, layout);
	return rc;
}
