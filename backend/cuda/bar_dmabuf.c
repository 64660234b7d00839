/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A BAR mapping by mmap of a dma-buf. Every driver since 11.7 exports the dma-buf; mapping works
 * from CUDA 13.3 on (before, mmap fails with errno 524). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cuda/bar_way.h"
#include "backend/cuda/driver/driver.h"
#include "common/cleanup.h"

/* Estimated: half of Vulkan's cost, for the export and the page tables of the mapping. */
#define COST_NS_PER_MIB 5000

static int dmabuf_open(const struct bar_device *device, void **state, char *reason)
{
	const struct cuda_driver *cu = device->cu;
	int supported = 0;

	if (!cu->cuMemGetHandleForAddressRange ||
	    cu->cuDeviceGetAttribute(&supported, GM_CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
				     device->handle) != GM_CUDA_SUCCESS ||
	    !supported) {
		snprintf(reason, BAR_REASON_MAX, "the driver does not export dma-bufs");
		return -ENOTSUP;
	}
	*state = (void *)device;
	return 0;
}

static void dmabuf_close(void *state)
{
	(void)state;
}

/* Maps anywhere first: a failed mapping with MAP_FIXED may have unmapped the target. */
static void *fd_map(int fd, uint64_t bytes, void *at)
{
	void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (!at || mapped == MAP_FAILED)
		return mapped;
	void *moved = mremap(mapped, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
	if (moved != MAP_FAILED)
		return moved;
	munmap(mapped, bytes);
	return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
}

static int dmabuf_map(void *state, const struct bar_source *source, void *at, void **address,
		      void **mapping, char *reason)
{
	const struct bar_device *device = state;
	AUTO_CLOSE int fd = -1;

	int exported;
	gm_CUresult result = device->cu->cuMemGetHandleForAddressRange(
	    &exported, source->address, source->bytes, GM_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	if (result != GM_CUDA_SUCCESS) {
		char name[DRIVER_ERROR_NAME_MAX];
		snprintf(reason, BAR_REASON_MAX, "dma-buf export: %s",
			 driver_error_name(device->cu, result, name));
		return driver_error(result).error;
	}
	fd = exported;
	void *mapped = fd_map(fd, source->bytes, at);
	if (mapped == MAP_FAILED) {
		int error = errno;
		/* 524 is the kernel's ENOTSUPP, which user space has no name for. */
		snprintf(reason, BAR_REASON_MAX, "mmap of a dma-buf: errno %d%s", error,
			 error == 524 ? " (the driver is older than CUDA 13.3)" : "");
		return error == ENOMEM || error == ENOSPC ? -error : -ENOTSUP;
	}
	*address = mapped;
	*mapping = state; /* not NULL; unmap needs only the address */
	return 0;
}

static void dmabuf_unmap(void *state, void *address, uint64_t bytes, void *mapping)
{
	(void)state;
	(void)mapping;
	munmap(address, bytes);
}

const struct bar_way cuda_bar_dmabuf = {
    .name = "dmabuf",
    .needs = BAR_NEEDS_CUDA,
    .cost = COST_NS_PER_MIB,
    .open = dmabuf_open,
    .close = dmabuf_close,
    .map = dmabuf_map,
    .unmap = dmabuf_unmap,
};
