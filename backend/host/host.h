/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* GPUs simulated in system memory. Every chunk is a memfd, mapped as long as the chunk lives. */
#ifndef BACKEND_HOST_HOST_H
#define BACKEND_HOST_HOST_H

#include "backend/backend.h"

struct host_device {
	struct device device;
	_Atomic uint64_t used; /* bytes of all chunks of PLACE_GPU */
	bool bar_off;
	atomic_bool said_no_memfd;
};

struct host_chunk {
	struct chunk chunk;
	char *base;
	int fd;
};

static inline struct host_device *host_device(struct device *device)
{
	return (struct host_device *)device;
}

static inline struct host_chunk *host_chunk(struct chunk *chunk)
{
	return (struct host_chunk *)chunk;
}

/* The ops, in the files host_chunk.c and host_copy.c. */
int host_chunk_new(struct device *device, enum memory_place place, uint64_t bytes,
		   struct chunk **chunk);
void host_chunk_free(struct chunk *chunk);
int host_chunk_export(struct chunk *chunk, int *fd);
int host_chunk_import_foreign(struct device *device, uint64_t bytes, int fd,
			      enum chunk_origin origin, struct chunk **chunk);
int host_chunk_import(struct device *device, enum memory_place place, uint64_t bytes, int fd,
		      struct chunk **chunk);
int host_bar_map(struct chunk *chunk, void **address);
void host_bar_unmap(struct chunk *chunk, void *address);

int host_copier_new(struct backend *backend, struct copier **copier);
void host_copier_free(struct copier *copier);
int host_pin(struct copier *copier, void *base, size_t bytes);
void host_unpin(struct copier *copier, void *base);
int host_dma_in(struct copier *copier, struct chunk *to, uint64_t offset, const void *from,
		size_t bytes);
int host_dma_out(struct copier *copier, void *to, struct chunk *from, uint64_t offset,
		 size_t bytes);
int host_dma_across(struct copier *copier, struct chunk *to, uint64_t to_offset, struct chunk *from,
		    uint64_t from_offset, uint64_t bytes);
int host_dma_zero(struct copier *copier, struct chunk *to, uint64_t offset, uint64_t bytes);
int host_wait(struct copier *copier);

#endif
