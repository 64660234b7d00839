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

/* A slice of a GPU (MIG) has a UUID of another form. */
static void nvml_find(struct cuda_device *device)
{
	uuid_describe(device, "MIG");
	device->nvml = nvml_device(device->cuda, device->base.uuid);
	if (device->nvml)
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
	nvml_find(device);
	device->rdma = device_attribute(
	    device, GM_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	device->base.host_memory = device_attribute(
	    device, GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
	/* -1: a machine without nodes, whose memory is node 0 to the driver. */
	int node = device_attribute(device, GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);

	device->numa_node = node < 0 ? 0 : node;
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

/* The device at CUDA's ordinal, which is the index until nvidia-smi's number is known. */
static int device_open(struct cuda *cuda, unsigned ordinal, struct cuda_device **device)
{
	AUTO_FREE struct cuda_device *made = cacheline_calloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->cuda = cuda;
	made->base.backend = &cuda->base;
	made->base.index = ordinal;
	int rc =
	    cuda_result(made, cuda->cu.cuDeviceGet(&made->handle, (int)ordinal), "cuDeviceGet");
	if (rc == 0)
		rc = device_describe(made);
	if (rc < 0)
		return rc;
	made->base.bar_bytes = device_bar_bytes(made);
	pthread_mutex_init(&made->lock, NULL);
	cuda_bar_init(made);
	*device = made;
	made = NULL;
	return 0;
}

void cuda_device_close(struct cuda_device *device)
{
	if (!device)
		return;
	cuda_bar_close(device);
	cuda_range_close(device);
	cuda_context_close(device);
	pthread_mutex_destroy(&device->lock);
	free(device);
}

/* With CUDA_VISIBLE_DEVICES, CUDA numbers only the visible GPUs. Either all devices get
 * nvidia-smi's numbers or no device does, so that numbers stay unique. */
static void devices_number(struct cuda *cuda, struct cuda_device **found, unsigned n)
{
	unsigned indices[BACKEND_DEVICES_MAX];
	uint64_t seen = 0;

	for (unsigned i = 0; i < n; i++) {
		if (nvml_index(cuda, found[i]->nvml, &indices[i]) < 0 ||
		    indices[i] >= BACKEND_DEVICES_MAX || seen & 1ULL << indices[i])
			return;
		seen |= 1ULL << indices[i];
	}
	for (unsigned i = 0; i < n; i++)
		found[i]->base.index = indices[i];
}

static struct cuda_device **device_find(struct cuda_device **found, unsigned n, unsigned index)
{
	for (unsigned i = 0; i < n; i++)
		if (found[i] && found[i]->base.index == index)
			return &found[i];
	return NULL;
}

/* Moves the selected devices of found into the backend. */
static int devices_select(struct cuda *cuda, const struct backend_config *config,
			  struct cuda_device **found, unsigned n)
{
	unsigned indices[BACKEND_DEVICES_MAX], selected, available = 0;

	for (unsigned i = 0; i < n; i++)
		if (found[i]->base.index >= available)
			available = found[i]->base.index + 1;
	int rc = backend_parse_gpus(config->gpus, available, indices, &selected);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < selected; i++) {
		struct cuda_device **device = device_find(found, n, indices[i]);
		if (!device && config->gpus) {
			log_error("gpus=%s: GPU %u is hidden from this process", config->gpus,
				  indices[i]);
			return -ENODEV;
		}
		if (!device)
			continue;
		if (!has_vmm(*device)) {
			log_warn("%s (%s) is not used: its driver has no virtual memory "
				 "management",
				 (*device)->base.label, (*device)->base.name);
			continue;
		}
		(*device)->base.slot = cuda->base.n_devices;
		cuda->base.devices[cuda->base.n_devices++] = &(*device)->base;
		*device = NULL;
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
	devices_number(cuda, found, n);
	int rc = devices_select(cuda, config, found, n);
	for (unsigned i = 0; i < n; i++)
		cuda_device_close(found[i]);
	if (rc == 0)
		peers_find(cuda);
	return rc;
}
