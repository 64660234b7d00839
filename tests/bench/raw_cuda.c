/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* On a GPU, through the driver alone: a stream for each thread, buffers registered with the driver,
 * and the first way to a BAR mapping that works. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/bar_way.h"
#include "backend/cuda/driver/driver.h"
#include "backend/stream/stream.h"
#include "tests/bench/raw.h"

#define GRANULARITY (2ULL << 20)
#define GPUS	    2

/* An allocation on a GPU, mapped with access for both GPUs. */
struct memory {
	gm_CUmemGenericAllocationHandle handle;
	gm_CUdeviceptr at; /* 0: not mapped */
	uint64_t bytes;
};

struct raw_cuda {
	struct raw base; /* must be the first member */
	struct cuda_driver cu;
	gm_CUresult (*cuMemcpyAsync)(gm_CUdeviceptr to, gm_CUdeviceptr from, size_t bytes,
				     gm_CUstream stream);
	gm_CUdevice gpus[GPUS];
	unsigned n_gpus; /* 2 only if the GPUs can access one another as peers */
	gm_CUcontext contexts[GPUS];
	gm_CUstream streams[LANES_MAX];
	void *pinned;
	struct memory data, copies[GPUS];
	struct bar_device bar_device;
	const struct bar_way *way; /* NULL: no provider works */
	void *way_state, *mapping;
};

static const struct bar_way *const ways[] = {&cuda_bar_dmabuf, &cuda_bar_gdrcopy, &cuda_bar_vulkan};

static struct raw_cuda *raw_cuda(struct raw *raw)
{
	return (struct raw_cuda *)raw;
}

static int error_of(gm_CUresult result)
{
	return driver_error(result).error;
}

/* --- operations */

static int use(struct raw *raw)
{
	return error_of(raw_cuda(raw)->cu.cuCtxSetCurrent(raw_cuda(raw)->contexts[0]));
}

static int enter(struct target *target, unsigned lane)
{
	(void)lane;
	return use(target->raw);
}

static ssize_t waited(struct raw_cuda *raw, unsigned lane, gm_CUresult result, size_t bytes)
{
	if (result == GM_CUDA_SUCCESS)
		result = raw->cu.cuStreamSynchronize(raw->streams[lane]);
	return result == GM_CUDA_SUCCESS ? (ssize_t)bytes : error_of(result);
}

static ssize_t copy_read(struct target *target, unsigned lane, void *to, size_t bytes,
			 uint64_t offset)
{
	struct raw_cuda *raw = raw_cuda(target->raw);

	return waited(
	    raw, lane,
	    raw->cu.cuMemcpyDtoHAsync(to, raw->data.at + offset, bytes, raw->streams[lane]), bytes);
}

static ssize_t copy_write(struct target *target, unsigned lane, const void *from, size_t bytes,
			  uint64_t offset)
{
	struct raw_cuda *raw = raw_cuda(target->raw);

	return waited(
	    raw, lane,
	    raw->cu.cuMemcpyHtoDAsync(raw->data.at + offset, from, bytes, raw->streams[lane]),
	    bytes);
}

static const struct target_ops copy_ops = {enter, copy_read, copy_write};
static const struct target_ops bar_ops = {enter, raw_bar_read, raw_bar_write};

static int across(struct raw *base, unsigned gpu, uint64_t bytes)
{
	struct raw_cuda *raw = raw_cuda(base);

	if (gpu >= raw->n_gpus)
		return -ENOTSUP;
	int error = use(base);

	if (error)
		return error;
	ssize_t n = waited(
	    raw, 0,
	    raw->cu.cuMemcpyDtoDAsync(raw->copies[gpu].at, raw->data.at, bytes, raw->streams[0]),
	    bytes);
	return n < 0 ? (int)n : 0;
}

static int read_copy(struct raw *base, unsigned gpu, void *to, uint64_t bytes, uint64_t offset)
{
	struct raw_cuda *raw = raw_cuda(base);
	int error = use(base);

	if (error)
		return error;
	ssize_t n = waited(
	    raw, 0,
	    raw->cu.cuMemcpyDtoHAsync(to, raw->copies[gpu].at + offset, bytes, raw->streams[0]),
	    bytes);
	return n < 0 ? (int)n : 0;
}

/* Any address: of a GPU, or of system memory that a GPU reaches. */
static int fetch(struct raw *base, void *to, unsigned long long address, uint64_t bytes)
{
	struct raw_cuda *raw = raw_cuda(base);
	int error = use(base);

	if (error)
		return error;
	ssize_t n = waited(
	    raw, 0,
	    raw->cuMemcpyAsync((gm_CUdeviceptr)(uintptr_t)to, address, bytes, raw->streams[0]),
	    bytes);
	return n < 0 ? (int)n : 0;
}

/* --- memory */

static void memory_close(struct raw_cuda *raw, struct memory *memory)
{
	if (!memory->at)
		return;
	raw->cu.cuMemUnmap(memory->at, memory->bytes);
	raw->cu.cuMemAddressFree(memory->at, memory->bytes);
	raw->cu.cuMemRelease(memory->handle);
	memory->at = 0;
}

/* Gives both GPUs access to the range: a copy between ranges without mutual access would go through
 * the host. */
static gm_CUresult let_in(struct raw_cuda *raw, gm_CUdeviceptr at, uint64_t bytes)
{
	gm_CUmemAccessDesc access[GPUS];

	for (unsigned i = 0; i < raw->n_gpus; i++)
		access[i] = (gm_CUmemAccessDesc){
		    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = raw->gpus[i]},
		    .flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};
	return raw->cu.cuMemSetAccess(at, bytes, access, raw->n_gpus);
}

static int memory_open(struct raw_cuda *raw, unsigned gpu, uint64_t wanted, struct memory *memory)
{
	uint64_t bytes = (wanted + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
	int rdma = 0;
	gm_CUmemAllocationProp prop = {
	    .type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = raw->gpus[gpu]},
	};
	struct memory made = {.bytes = bytes};

	raw->cu.cuDeviceGetAttribute(
	    &rdma, GM_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, raw->gpus[gpu]);
	prop.allocFlags.gpuDirectRDMACapable = rdma != 0;
	gm_CUresult result = raw->cu.cuMemCreate(&made.handle, bytes, &prop, 0);

	if (result != GM_CUDA_SUCCESS)
		return error_of(result);
	result = raw->cu.cuMemAddressReserve(&made.at, bytes, 0, 0, 0);
	if (result == GM_CUDA_SUCCESS)
		result = raw->cu.cuMemMap(made.at, bytes, 0, made.handle, 0);
	if (result == GM_CUDA_SUCCESS)
		result = let_in(raw, made.at, bytes);
	*memory = made; /* the partial allocation ends with the others */
	return error_of(result);
}

/* --- the BAR */

struct source {
	struct bar_source base; /* must be the first member */
	struct raw_cuda *raw;
};

static int export_data(const struct bar_source *base, int *fd)
{
	struct raw_cuda *raw = ((const struct source *)base)->raw;

	return error_of(raw->cu.cuMemExportToShareableHandle(
	    fd, raw->data.handle, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

/* 0, or -errno with the reason in why. */
static int way_open(struct raw_cuda *raw, const struct bar_way *way, char *why)
{
	struct source source = {
	    .base = {.address = raw->data.at, .bytes = raw->data.bytes, .export = export_data},
	    .raw = raw,
	};
	void *address;

	int rc = way->open(&raw->bar_device, &raw->way_state, why);
	if (rc < 0)
		return rc;
	rc = way->map(raw->way_state, &source.base, NULL, &address, &raw->mapping, why);
	if (rc < 0) {
		way->close(raw->way_state);
		return rc;
	}
	raw->base.bar = address;
	raw->way = way;
	return 0;
}

/* The mapping is not verified here: every case verifies the bytes of every target. */
static void bar_open(struct raw_cuda *raw)
{
	char why[BAR_REASON_MAX] = "";

	raw->bar_device = (struct bar_device){.cu = &raw->cu, .handle = raw->gpus[0]};
	raw->cu.cuDeviceGetUuid(&raw->bar_device.uuid, raw->gpus[0]);
	for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (way_open(raw, ways[i], why) == 0) {
			snprintf(raw->base.bar_about, WHY_MAX,
				 "streaming stores and loads (%s) through the BAR, mapped by %s",
				 stream_name(), ways[i]->name);
			return;
		}
	snprintf(raw->base.bar_absent, WHY_MAX, "no way to a BAR mapping works here: %.100s", why);
}

/* --- setting up and giving back */

static void give_back(struct raw *base)
{
	struct raw_cuda *raw = raw_cuda(base);

	use(base);
	if (raw->way) {
		raw->way->unmap(raw->way_state, raw->base.bar, raw->data.bytes, raw->mapping);
		raw->way->close(raw->way_state);
	}
	for (unsigned i = 0; i < LANES_MAX; i++)
		if (raw->streams[i])
			raw->cu.cuStreamDestroy(raw->streams[i]);
	if (raw->pinned)
		raw->cu.cuMemHostUnregister(raw->pinned);
	memory_close(raw, &raw->data);
	for (unsigned i = 0; i < GPUS; i++)
		memory_close(raw, &raw->copies[i]);
	for (unsigned i = 0; i < GPUS; i++)
		if (raw->contexts[i])
			raw->cu.cuDevicePrimaryCtxRelease(raw->gpus[i]);
	free(raw);
}

static gm_CUresult devices_open(struct raw_cuda *raw)
{
	int count = 0, peers[2] = {0, 0};
	gm_CUresult result = raw->cu.cuInit(0);

	if (result == GM_CUDA_SUCCESS)
		result = raw->cu.cuDeviceGetCount(&count);
	if (result == GM_CUDA_SUCCESS && count == 0)
		return GM_CUDA_ERROR_NO_DEVICE;
	for (int i = 0; i < GPUS && i < count && result == GM_CUDA_SUCCESS; i++)
		result = raw->cu.cuDeviceGet(&raw->gpus[i], i);
	raw->n_gpus = 1;
	if (result == GM_CUDA_SUCCESS && count > 1 &&
	    raw->cu.cuDeviceCanAccessPeer(&peers[0], raw->gpus[0], raw->gpus[1]) ==
		GM_CUDA_SUCCESS &&
	    raw->cu.cuDeviceCanAccessPeer(&peers[1], raw->gpus[1], raw->gpus[0]) ==
		GM_CUDA_SUCCESS &&
	    peers[0] && peers[1])
		raw->n_gpus = 2;
	/* The second GPU's context makes the second GPU's memory usable to the first. */
	for (unsigned i = 0; i < raw->n_gpus && result == GM_CUDA_SUCCESS; i++)
		result = raw->cu.cuDevicePrimaryCtxRetain(&raw->contexts[i], raw->gpus[i]);
	if (result == GM_CUDA_SUCCESS)
		result = raw->cu.cuCtxSetCurrent(raw->contexts[0]);
	return result;
}

static int means_open(struct raw_cuda *raw, const struct data *data, uint64_t copy_bytes)
{
	gm_CUresult result = raw->cu.cuMemHostRegister(data->arena, data->arena_bytes,
						       GM_CU_MEMHOSTREGISTER_PORTABLE);

	if (result == GM_CUDA_SUCCESS)
		raw->pinned = data->arena;
	for (unsigned i = 0; i < data->lanes && result == GM_CUDA_SUCCESS; i++)
		result = raw->cu.cuStreamCreate(&raw->streams[i], GM_CU_STREAM_NON_BLOCKING);
	int error = error_of(result);

	if (!error)
		error = memory_open(raw, 0, data->lanes * data->region, &raw->data);
	for (unsigned i = 0; i < raw->n_gpus && !error; i++)
		error = memory_open(raw, i, copy_bytes, &raw->copies[i]);
	return error;
}

static void describe(struct raw_cuda *raw)
{
	char name[64] = "GPU";
	int version = 0;

	raw->cu.cuDeviceGetName(name, sizeof(name), raw->gpus[0]);
	raw->cu.cuDriverGetVersion(&version);
	snprintf(raw->base.device, WHY_MAX, "%s, CUDA %d.%d%s", name, version / 1000,
		 version % 1000 / 10, raw->n_gpus > 1 ? ", and a peer" : "");
	snprintf(
	    raw->base.copy_about, WHY_MAX,
	    "cuMemcpyHtoDAsync/DtoHAsync from registered memory and a wait, a stream per thread");
}

static int functions_load(struct raw_cuda *raw, char *why)
{
	static const struct driver_symbol any_copy = {
	    "cuMemcpyAsync", offsetof(struct raw_cuda, cuMemcpyAsync), REQUIRED};
	void *library;
	int rc = driver_load_cuda(&raw->cu, why, WHY_MAX);

	return rc < 0 ? rc : driver_load("libcuda.so.1", &any_copy, 1, raw, why, WHY_MAX, &library);
}

struct raw *raw_cuda_open(const struct data *data, uint64_t copy_bytes, char *why)
{
	struct raw_cuda *raw = calloc(1, sizeof(*raw));

	if (!raw)
		return NULL;
	raw->base = (struct raw){.copy_ops = &copy_ops,
				 .bar_ops = &bar_ops,
				 .across = across,
				 .read_copy = read_copy,
				 .fetch = fetch,
				 .use = use,
				 .close = give_back};
	if (functions_load(raw, why) < 0) {
		free(raw);
		return NULL;
	}
	gm_CUresult result = devices_open(raw);
	int error = error_of(result);

	if (!error)
		error = means_open(raw, data, copy_bytes);
	if (error) {
		snprintf(why, WHY_MAX, "the driver: %s", strerror(-error));
		give_back(&raw->base);
		return NULL;
	}
	bar_open(raw);
	describe(raw);
	return &raw->base;
}

bool raw_cuda_is_here(void)
{
	return access("/dev/nvidiactl", R_OK | W_OK) == 0;
}
