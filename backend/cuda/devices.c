/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Finds the GPUs, and selects those of gpus=LIST. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/provider.h"
#include "common/cleanup.h"
#include "common/log.h"

/* Most bytes to map if NVML does not know: half of the 256 MiB of cards without resizable BAR. */
#define BAR_BYTES_UNKNOWN (128ULL << 20)

static int device_attribute(struct cuda_device *device, gm_CUdevice_attribute name)
{
	int value = 0;
	if (device->cuda->cu.cuDeviceGetAttribute(&value, name, device->handle) != GM_CUDA_SUCCESS)
		return 0;
	return value;
}

static void uuid_describe(struct cuda_device *device, const char *kind)
{
	char *text = device->base.uuid;
	size_t room = sizeof(device->base.uuid);
	int at = snprintf(text, room, "%s-", kind);

	for (unsigned i = 0; i < sizeof(device->uuid.bytes); i++)
		at += snprintf(text + at, room - (size_t)at, "%s%02x",
			       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			       (unsigned char)device->uuid.bytes[i]);
}

static void pci_describe(struct cuda_device *device)
{
	char *pci = device->base.pci;

	if (device->cuda->cu.cuDeviceGetPCIBusId(pci, sizeof(device->base.pci), device->handle) !=
	    GM_CUDA_SUCCESS)
		pci[0] = '\0';
	for (; *pci; pci++)
		*pci = (char)tolower((unsigned char)*pci);
}

/* CUDA names an instance of MIG "NVIDIA H100 80GB HBM3 MIG 1g.10gb". Its UUID has another form, and
 * is the instance's in cuDeviceGetUuid_v2. */
static void identity_describe(struct cuda_device *device)
{
	uuid_describe(device, "MIG");
	device->nvml = nvml_device(device->cuda, device->base.uuid);
	device->is_instance = device->nvml || strstr(device->base.name, " MIG ");
	if (device->is_instance)
		return;
	uuid_describe(device, "GPU");
	device->nvml = nvml_device(device->cuda, device->base.uuid);
}

static int device_describe(struct cuda_device *device)
{
	const struct cuda_driver *cu = &device->cuda->cu;

	size_t total;
	gm_CUresult result =
	    cu->cuDeviceGetName(device->base.name, sizeof(device->base.name), device->handle);
	if (result == GM_CUDA_SUCCESS)
		result = cu->cuDeviceGetUuid(&device->uuid, device->handle);
	if (result == GM_CUDA_SUCCESS)
		result = cu->cuDeviceTotalMem(&total, device->handle);
	if (result != GM_CUDA_SUCCESS)
		return cuda_result(device, result, "describing it");
	device->base.total = total;
	pci_describe(device);
	identity_describe(device);
	device->rdma = device_attribute(
	    device, GM_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	device->base.host_memory = device_attribute(
	    device, GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
	/* -1: a machine without nodes, whose memory is node 0 to the driver. */
	int node = device_attribute(device, GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);

	device->numa_node = node < 0 ? 0 : node;
	cuda_compute_mode_read(device);
	return 0;
}

static bool has_vmm(struct cuda_device *device)
{
	gm_CUmemAllocationProp prop = {
	    .type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle},
	};
	size_t granularity = 0;

	return device_attribute(device,
				GM_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
	       device_attribute(
		   device, GM_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) &&
	       device->cuda->cu.cuMemGetAllocationGranularity(
		   &granularity, &prop, GM_CU_MEM_ALLOC_GRANULARITY_MINIMUM) == GM_CUDA_SUCCESS &&
	       granularity && CHUNK_ALIGN % granularity == 0;
}

static uint64_t device_bar_bytes(struct cuda_device *device)
{
	uint64_t bytes;

	if (device->cuda->bar == BAR_OFF)
		return 0;
	return nvml_bar_free(device, &bytes) == 0 ? bytes : BAR_BYTES_UNKNOWN;
}

/* The device at CUDA's ordinal, which is its name in messages until its number is known. */
static int device_open(struct cuda *cuda, unsigned ordinal, struct cuda_device **device)
{
	AUTO_FREE struct cuda_device *new_device = cacheline_calloc(sizeof(*new_device));
	if (!new_device)
		return -ENOMEM;
	new_device->cuda = cuda;
	new_device->base.backend = &cuda->base;
	snprintf(new_device->base.label, sizeof(new_device->base.label), "gpu%u", ordinal);
	int rc = cuda_result(new_device, cuda->cu.cuDeviceGet(&new_device->handle, (int)ordinal),
			     "cuDeviceGet");
	if (rc == 0)
		rc = device_describe(new_device);
	if (rc < 0)
		return rc;
	new_device->base.bar_bytes = device_bar_bytes(new_device);
	pthread_mutex_init(&new_device->lock, NULL);
	pthread_mutex_init(&new_device->import_lock, NULL);
	cuda_bar_init(new_device);
	*device = new_device;
	new_device = NULL;
	return 0;
}

void cuda_device_close(struct cuda_device *device)
{
	if (!device)
		return;
	cuda_bar_close(device);
	cuda_range_close(device);
	cuda_context_close(device);
	pthread_mutex_destroy(&device->import_lock);
	pthread_mutex_destroy(&device->lock);
	free(device);
}

/* Numbers without NVML: in CUDA's order, where the instances of a GPU have its PCI address. */
static void devices_count(struct cuda_device **found, unsigned n)
{
	unsigned gpus = 0;

	for (unsigned i = 0; i < n; i++) {
		struct cuda_device *device = found[i], *sibling = NULL;

		for (unsigned k = 0; k < i && device->is_instance; k++)
			if (found[k]->is_instance &&
			    strcmp(found[k]->base.pci, device->base.pci) == 0)
				sibling = found[k];
		device->base.index = sibling ? sibling->base.index : gpus++;
		device->instance = sibling ? sibling->instance + 1 : 0;
	}
}

/* With CUDA_VISIBLE_DEVICES, CUDA numbers only the visible GPUs. Either all devices get
 * nvidia-smi's numbers or no device does, so that no two have the same numbers. */
static void devices_number(struct cuda_device **found, unsigned n)
{
	struct {
		unsigned index, instance;
	} numbers[BACKEND_DEVICES_MAX];

	devices_count(found, n);
	for (unsigned i = 0; i < n; i++) {
		if (nvml_number(found[i], &numbers[i].index, &numbers[i].instance) < 0 ||
		    numbers[i].index >= BACKEND_DEVICES_MAX)
			return;
		for (unsigned k = 0; k < i; k++)
			if (numbers[k].index == numbers[i].index &&
			    (!found[i]->is_instance || !found[k]->is_instance ||
			     numbers[k].instance == numbers[i].instance))
				return;
	}
	for (unsigned i = 0; i < n; i++) {
		found[i]->base.index = numbers[i].index;
		found[i]->instance = numbers[i].instance;
	}
}

static void device_label(struct cuda_device *device)
{
	struct device *base = &device->base;

	if (device->is_instance)
		snprintf(base->label, sizeof(base->label), "gpu%u.mig%u", base->index,
			 device->instance);
	else
		snprintf(base->label, sizeof(base->label), "gpu%u", base->index);
}

static int device_compare(const void *first, const void *second)
{
	const struct cuda_device *a = *(struct cuda_device *const *)first;
	const struct cuda_device *b = *(struct cuda_device *const *)second;

	if (a->base.index != b->base.index)
		return a->base.index < b->base.index ? -1 : 1;
	return a->instance < b->instance ? -1 : a->instance > b->instance;
}

/* A driver of CUDA 12 or older shows one MIG instance to a process, whatever exists. */
static void hidden_instances_log(struct cuda_device **found, unsigned n)
{
	unsigned shown = 0, exist = n && found[0]->is_instance ? nvml_instances(found[0]) : 0;

	for (unsigned i = 0; i < n; i++)
		shown += found[i]->base.index == found[0]->base.index;
	if (shown < exist)
		log_info("gpu%u has %u MIG instances, and CUDA shows %u to this process: each "
			 "other needs a mount of its own, with its UUID in CUDA_VISIBLE_DEVICES",
			 found[0]->base.index, exist, shown);
}

/* Moves the selected devices of found, which are in the order of the backend, into the backend. */
static int devices_select(struct cuda *cuda, const struct backend_config *config,
			  struct cuda_device **found, unsigned n)
{
	struct device *devices[BACKEND_DEVICES_MAX];
	uint64_t selected = 0;

	for (unsigned i = 0; i < n; i++)
		devices[i] = &found[i]->base;
	int rc = backend_select_gpus(config->gpus, devices, n, &selected);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < n; i++) {
		if (!(selected >> i & 1))
			continue;
		if (!has_vmm(found[i])) {
			log_warn("%s (%s) is not used: its driver has no virtual memory "
				 "management",
				 found[i]->base.label, found[i]->base.name);
			continue;
		}
		if (!config->recovers && !cuda_compute_mode_check(found[i]))
			continue;
		found[i]->base.slot = cuda->base.n_devices;
		cuda->base.devices[cuda->base.n_devices++] = &found[i]->base;
		found[i] = NULL;
	}
	return 0;
}

static bool peer_can_access(struct cuda *cuda, struct cuda_device *from, struct cuda_device *to)
{
	int can = 0;
	return cuda->cu.cuDeviceCanAccessPeer(&can, from->handle, to->handle) == GM_CUDA_SUCCESS &&
	       can;
}

static void peers_find(struct cuda *cuda)
{
	for (unsigned i = 0; i < cuda->base.n_devices; i++) {
		for (unsigned j = 0; j < cuda->base.n_devices; j++) {
			struct cuda_device *a = cuda_device(cuda->base.devices[i]);
			struct cuda_device *b = cuda_device(cuda->base.devices[j]);
			if (i != j)
				a->peer[j] =
				    peer_can_access(cuda, a, b) && peer_can_access(cuda, b, a);
		}
	}
}

int cuda_devices_open(struct cuda *cuda, const struct backend_config *config)
{
	struct cuda_device *found[BACKEND_DEVICES_MAX];
	unsigned n = 0;
	int count = 0;

	if (cuda->cu.cuDeviceGetCount(&count) != GM_CUDA_SUCCESS || count < 0)
		count = 0;
	if (count > BACKEND_DEVICES_MAX)
		count = BACKEND_DEVICES_MAX;
	/* A GPU that cannot even be described is in the log already; the others go on. */
	for (unsigned i = 0; i < (unsigned)count; i++)
		if (device_open(cuda, i, &found[n]) == 0)
			n++;
	devices_number(found, n);
	for (unsigned i = 0; i < n; i++)
		device_label(found[i]);
	qsort(found, n, sizeof(struct cuda_device *), device_compare);
	hidden_instances_log(found, n);
	int rc = devices_select(cuda, config, found, n);
	for (unsigned i = 0; i < n; i++)
		cuda_device_close(found[i]);
	if (rc == 0)
		peers_find(cuda);
	return rc;
}
