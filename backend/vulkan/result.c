/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The meaning of Vulkan's results. */
#include <errno.h>
#include <stdio.h>

#include "backend/vulkan/provider.h"
#include "common/log.h"

static int result_errno(VkResult result)
{
	switch (result) {
	case VK_SUCCESS:
		return 0;
	case VK_ERROR_OUT_OF_DEVICE_MEMORY:
	case VK_ERROR_TOO_MANY_OBJECTS:
	case VK_ERROR_MEMORY_MAP_FAILED: /* no room in the BAR, or in the address space */
		return -ENOSPC;
	case VK_ERROR_OUT_OF_HOST_MEMORY:
		return -ENOMEM;
	case VK_ERROR_INVALID_EXTERNAL_HANDLE:
		return -EINVAL;
	case VK_ERROR_INITIALIZATION_FAILED:
	case VK_ERROR_EXTENSION_NOT_PRESENT:
	case VK_ERROR_FEATURE_NOT_PRESENT:
	case VK_ERROR_INCOMPATIBLE_DRIVER:
		return -ENOTSUP;
	default:
		return -EIO;
	}
}

int vulkan_result(struct vulkan_device *device, VkResult result, const char *call)
{
	int rc = result < 0 ? result_errno(result) : 0;
	char name[VULKAN_ERROR_NAME_MAX], cause[160];

	if (rc == 0 || rc == -ENOSPC)
		return rc;
	vulkan_error_name(result, name);
	if (result == VK_ERROR_DEVICE_LOST) {
		snprintf(cause, sizeof(cause), "%s: %s", call, name);
		device_fail(&device->base, cause);
	} else if (!atomic_load(&device->base.failed)) {
		log_error("gpu%u: %s: %s", device->base.index, call, name);
	}
	return rc;
}
