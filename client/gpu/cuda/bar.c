/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/gpu/cuda/bar.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/core/error.h"
#include "client/core/process.h"
#include "client/gpu/cuda/bar_way.h"
#include "common/cleanup.h"
#include "common/system/ipc_memory.h"

/* The best way first, for a program that uses CUDA. In any other program the library avoids CUDA,
 * because CUDA does not survive a fork and a child may want to use CUDA. Such a program tries
 * Vulkan first, and initialises CUDA only if Vulkan does not work. */
static const struct bar_way *const ways_with_cuda[] = {&cuda_bar_dmabuf, &cuda_bar_gdrcopy,
						       &cuda_bar_vulkan};
static const struct bar_way *const ways_without_cuda[] = {&cuda_bar_vulkan, &cuda_bar_dmabuf,
							  &cuda_bar_gdrcopy};
#define WAYS ((int)(sizeof(ways_with_cuda) / sizeof(ways_with_cuda[0])))

static pthread_mutex_t bar_lock = PTHREAD_MUTEX_INITIALIZER;
static struct client_bar *open_bars; /* under bar_lock; an entry is never changed or freed */
static bool parent_had_bars;	     /* this process is a child of fork(2) */

/* The child cannot use the drivers' state, and closing the state would harm the parent. */
static void bars_forked(void)
{
	parent_had_bars = parent_had_bars || open_bars;
	open_bars = NULL;
}

static struct client_fork_handler fork_handler = {.forked = bars_forked};

static bool way_wanted(const struct bar_way *way)
{
	const char *name = secure_getenv("GPUMEM_BAR");

	return !name || !*name || strcmp(name, "auto") == 0 || strcmp(name, way->name) == 0;
}

static int bar_prepare_cuda(struct client_bar *bar, const uint8_t uuid[16])
{
	int rc = client_cuda_get(&bar->cuda);

	if (rc == 0)
		rc = client_cuda_result(bar->cuda, bar->cuda->cu.cuInit(0), "cuInit");
	if (rc == 0)
		rc = client_cuda_find(bar->cuda, uuid, &bar->device.handle);
	if (rc == 0)
		bar->device.cu = &bar->cuda->cu;
	return rc;
}

/* The way may have loaded a driver's library, at the first attempt only. Under bar_lock. */
static void way_loaded(const struct bar_way *way)
{
	static const struct bar_way *loaded[WAYS + 2]; /* with the system's way, and NULL */
	int n = 0;

	while (loaded[n] && loaded[n] != way)
		n++;
	if (loaded[n])
		return;
	loaded[n] = way;
	client_fork_go_first();
}

/* Under bar_lock. */
static int bar_open_new(const uint8_t uuid[16], const struct bar_way *way, struct client_bar **bar,
			char *reason)
{
	AUTO_FREE struct client_bar *new_bar = calloc(1, sizeof(*new_bar));

	if (!new_bar)
		return -ENOMEM;
	client_fork_handler_register(&fork_handler);
	new_bar->way = way;
	memcpy(new_bar->device.uuid.bytes, uuid, sizeof(new_bar->device.uuid.bytes));
	int rc = way->needs == BAR_NEEDS_CUDA ? bar_prepare_cuda(new_bar, uuid) : 0;
	if (rc < 0) {
		snprintf(reason, BAR_REASON_MAX, "%.*s", BAR_REASON_MAX - 1, client_error_text());
		return -ENOTSUP;
	}
	rc = client_way_open(new_bar, reason);
	way_loaded(way);
	if (rc < 0)
		return -ENOTSUP;
	new_bar->next = open_bars;
	open_bars = new_bar;
	*bar = new_bar;
	new_bar = NULL;
	return 0;
}

static const struct bar_way *way_of(int rank)
{
	if (rank == CLIENT_BAR_SYSTEM)
		return &cuda_bar_system;
	if (rank == CLIENT_BAR_VULKAN)
		return &cuda_bar_vulkan;
	return client_cuda_running() ? ways_with_cuda[rank] : ways_without_cuda[rank];
}

int client_bar_open(const uint8_t uuid[16], int rank, struct client_bar **bar, char *reason)
{
	scoped_lock(&bar_lock);
	if (rank >= WAYS)
		return -ENOENT;
	const struct bar_way *way = way_of(rank);
	if (!way_wanted(way)) {
		snprintf(reason, BAR_REASON_MAX, "left out by GPUMEM_BAR");
		return -ENOTSUP;
	}
	if (parent_had_bars) {
		snprintf(reason, BAR_REASON_MAX, "the driver does not survive fork");
		return -ENOTSUP;
	}
	for (struct client_bar *at = open_bars; at; at = at->next) {
		if (at->way == way && memcmp(at->device.uuid.bytes, uuid, 16) == 0) {
			*bar = at;
			return 0;
		}
	}
	return bar_open_new(uuid, way, bar, reason);
}

static void gpu_unmap(const struct client_bar *bar, gm_CUdeviceptr at, uint64_t bytes)
{
	if (!at)
		return;
	bar->cuda->cu.cuMemUnmap(at, bytes);
	bar->cuda->cu.cuMemAddressFree(at, bytes);
}

/* Maps the chunk for the GPU: dma-bufs and GDRCopy know memory only by its device address. hint:
 * the address, if it is free, or NULL. */
static int gpu_map(const struct client_bar *bar, const struct client_chunk *chunk, void *hint,
		   gm_CUdeviceptr *at)
{
	const struct client_cuda *cuda = bar->cuda;
	const gm_CUmemAccessDesc access = {
	    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = bar->device.handle},
	    .flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	gm_CUmemGenericAllocationHandle handle;
	gm_CUdeviceptr address;

	gm_CUresult result = cuda->cu.cuMemImportFromShareableHandle(
	    &handle, (void *)(intptr_t)chunk->fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result != GM_CUDA_SUCCESS)
		return client_cuda_result(cuda, result, "cuMemImportFromShareableHandle");
	result = cuda->cu.cuMemAddressReserve(&address, chunk->bytes, 0,
					      (gm_CUdeviceptr)(uintptr_t)hint, 0);
	if (result == GM_CUDA_SUCCESS) {
		result = cuda->cu.cuMemMap(address, chunk->bytes, 0, handle, 0);
		if (result != GM_CUDA_SUCCESS)
			cuda->cu.cuMemAddressFree(address, chunk->bytes);
	}
	cuda->cu.cuMemRelease(handle);
	if (result != GM_CUDA_SUCCESS)
		return client_cuda_result(cuda, result, "cuMemMap");
	result = cuda->cu.cuMemSetAccess(address, chunk->bytes, &access, 1);
	if (result != GM_CUDA_SUCCESS) {
		gpu_unmap(bar, address, chunk->bytes);
		return client_cuda_result(cuda, result, "cuMemSetAccess");
	}
	*at = address;
	return 0;
}

static bool address_hold(void *at, size_t bytes)
{
	void *reservation =
	    mmap(at, bytes, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (reservation != MAP_FAILED && reservation != at)
		munmap(reservation, bytes);
	return reservation == at;
}

/* Moves a mapping whose way cannot choose the address. The way will unmap the old address later, so
 * a reservation keeps that address free. If another thread has taken the address meanwhile, the way
 * must never unmap there, and the chunk stays imported until the process ends. */
static int piece_move(struct client_bar_piece *piece, void *at)
{
	size_t bytes = piece->bytes;

	if (mremap(piece->address, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
		return -errno;
	piece->stranded = !address_hold(piece->address, bytes);
	piece->at = at;
	return 0;
}

int client_bar_map(struct client_bar *bar, const struct client_chunk *chunk, void *at,
		   struct client_bar_piece *piece, char *reason)
{
	struct client_bar_piece new_piece = {.bytes = chunk->bytes};
	void *hint = bar->way->at_gpu_address ? at : NULL;
	struct ipc_memory of_malloc;
	int rc = 0;

	if (ipc_memory_read(chunk->fd, &of_malloc)) {
		snprintf(reason, BAR_REASON_MAX, "CUDA maps no memory of cudaMalloc for the CPU");
		return -ENOTSUP;
	}
	/* The driver reserves no address that is reserved already. */
	if (hint)
		munmap(hint, new_piece.bytes);
	if (bar->way->needs == BAR_NEEDS_CUDA)
		rc = gpu_map(bar, chunk, hint, &new_piece.gpu);
	if (rc < 0) {
		if (hint)
			address_hold(hint, new_piece.bytes);
		snprintf(reason, BAR_REASON_MAX, "%.*s", BAR_REASON_MAX - 1, client_error_text());
		return rc;
	}
	rc = client_way_map(bar, chunk->fd, at, &new_piece, reason);
	if (rc < 0) {
		gpu_unmap(bar, new_piece.gpu, new_piece.bytes);
		if (at)
			address_hold(at, new_piece.bytes);
		return rc;
	}
	new_piece.at = new_piece.address;
	if (at && new_piece.at != at && hint)
		address_hold(at, new_piece.bytes);
	else if (at && new_piece.at != at)
		piece_move(&new_piece, at);
	*piece = new_piece;
	return 0;
}

void client_bar_unmap(struct client_bar *bar, const struct client_bar_piece *piece)
{
	if (piece->at != piece->address)
		munmap(piece->at, piece->bytes);
	if (!piece->stranded)
		client_way_unmap(bar, piece);
	gpu_unmap(bar, piece->gpu, piece->bytes);
}

bool client_bar_park(struct client_bar *bar, const struct client_bar_piece *piece)
{
	client_bar_unmap(bar, piece);
	return address_hold(piece->at, piece->bytes);
}
