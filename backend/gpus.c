/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The list of gpus=LIST. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backend/backend.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "common/number.h"

static int log_bad_list(const char *list)
{
	log_error("gpus=%s: not a list of GPUs; write one such as 0, 0-3 or gpu0.mig1, with "
		  "numbers, names or UUIDs, each GPU once",
		  list);
	return -EINVAL;
}

/* The numbers of an item, "N" or "N-M". */
static int item_numbers(char *item, const char *list, uint64_t *first, uint64_t *last)
{
	char *dash = strchr(item, '-');

	if (dash)
		*dash = '\0';
	if (parse_u64(item, 0, UINT32_MAX, first) < 0)
		return log_bad_list(list);
	*last = *first;
	if (dash && parse_u64(dash + 1, *first, UINT32_MAX, last) < 0)
		return log_bad_list(list);
	return 0;
}

static int log_missing(const char *list, const char *item, struct device *const *devices,
		       unsigned n)
{
	char labels[BACKEND_DEVICES_MAX * sizeof(devices[0]->label)];
	int length = snprintf(labels, sizeof(labels), "%s", n ? "" : "none");

	for (unsigned i = 0; i < n; i++)
		length += snprintf(labels + length, sizeof(labels) - (size_t)length, "%s%s",
				   i ? ", " : "", devices[i]->label);
	log_error("gpus=%s: there is no GPU %s here (this process sees %s)", list, item, labels);
	return -ENODEV;
}

/* Whether the item is the device's name or UUID, or its GPU's name. */
static bool device_is(const struct device *device, const char *item)
{
	char gpu[sizeof(device->label)];

	snprintf(gpu, sizeof(gpu), "gpu%u", device->index);
	return strcmp(item, device->label) == 0 || strcmp(item, gpu) == 0 ||
	       strcasecmp(item, device->uuid) == 0;
}

/* Adds the devices that an item of the list names, and at least one. */
static int devices_add(const char *item, const char *list, struct device *const *devices,
		       unsigned n, uint64_t *selected)
{
	uint64_t named = 0;

	for (unsigned i = 0; i < n; i++)
		if (device_is(devices[i], item))
			named |= 1ULL << i;
	if (named & *selected)
		return log_bad_list(list);
	*selected |= named;
	return named ? 0 : log_missing(list, item, devices, n);
}

static int list_item_select(char *item, const char *list, struct device *const *devices, unsigned n,
			    uint64_t *selected)
{
	uint64_t first, last;

	if (strncasecmp(item, "gpu", 3) == 0 || strncasecmp(item, "mig", 3) == 0)
		return devices_add(item, list, devices, n, selected);
	int rc = item_numbers(item, list, &first, &last);

	for (uint64_t i = first; rc == 0 && i <= last; i++) {
		char name[sizeof(devices[0]->label)];

		snprintf(name, sizeof(name), "gpu%u", (unsigned)i);
		rc = devices_add(name, list, devices, n, selected);
	}
	return rc;
}

int backend_select_gpus(const char *list, struct device *const *devices, unsigned n,
			uint64_t *selected)
{
	AUTO_FREE char *copy = strdup(list ? list : "");
	char *rest = list ? copy : NULL, *item;
	uint64_t all = 0;
	int rc = 0;

	static_assert(BACKEND_DEVICES_MAX <= 64, "the set of selected GPUs is one word");
	if (!copy)
		return -ENOMEM;
	while (rc == 0 && (item = strsep(&rest, ",")))
		rc = list_item_select(item, list, devices, n, &all);
	if (rc == 0)
		*selected = list ? all : UINT64_MAX;
	return rc;
}
