/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* DMA of a simulated GPU: copies by the CPU, complete on return. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host/host.h"
#include "common/cacheline.h"

int host_copier_new(struct backend *backend, struct copier **copier)
{
	struct copier *new_copier = cacheline_calloc(sizeof(*new_copier));

	(void)backend;
	if (!new_copier)
		return -ENOMEM;
	*copier = new_copier;
	return 0;
}

void host_copier_free(struct copier *copier)
{
	free(copier);
}

int host_pin(struct copier *copier, void *base, size_t bytes)
{
	(void)copier;
	(void)base;
	(void)bytes;
	return 0;
}

void host_unpin(struct copier *copier, void *base)
{
	(void)copier;
	(void)base;
}

int host_dma_in(struct copier *copier, struct chunk *to, uint64_t offset, const void *from,
		size_t bytes)
{
	(void)copier;
	memcpy(host_chunk(to)->base + offset, from, bytes);
	return 0;
}

int host_dma_out(struct copier *copier, void *to, struct chunk *from, uint64_t offset, size_t bytes)
{
	(void)copier;
	memcpy(to, host_chunk(from)->base + offset, bytes);
	return 0;
}

int host_dma_across(struct copier *copier, struct chunk *to, uint64_t to_offset, struct chunk *from,
		    uint64_t from_offset, uint64_t bytes)
{
	(void)copier;
	memcpy(host_chunk(to)->base + to_offset, host_chunk(from)->base + from_offset, bytes);
	return 0;
}

/* Frees whole 2 MiB pages instead of zeroing them: a hole reads as zero through every mapping, and
 * a large new file takes no memory until written. */
static bool punch_hole(struct host_chunk *chunk, uint64_t offset, uint64_t bytes)
{
	return fallocate(chunk->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			 (off_t)bytes) == 0;
}

int host_dma_zero(struct copier *copier, struct chunk *to, uint64_t offset, uint64_t bytes)
{
	struct host_chunk *chunk = host_chunk(to);
	uint64_t end = offset + bytes;
	uint64_t holes = (offset + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
	uint64_t holes_end = end / CHUNK_ALIGN * CHUNK_ALIGN;

	(void)copier;
	if (holes >= holes_end || !punch_hole(chunk, holes, holes_end - holes)) {
		memset(chunk->base + offset, 0, bytes);
		return 0;
	}
	memset(chunk->base + offset, 0, holes - offset);
	memset(chunk->base + holes_end, 0, end - holes_end);
	return 0;
}

int host_wait(struct copier *copier)
{
	(void)copier;
	return 0;
}
