/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Makes new memory of a simulated GPU non-zero, as on a real GPU. */
#ifndef TESTS_UNIT_POISON_H
#define TESTS_UNIT_POISON_H

#include <string.h>

#include "backend/backend.h"
#include "backend/providers.h"

#define POISON 0xa5

/* Replaces the host backend's chunk_new. */
static inline int poisoned_chunk(struct device *device, enum memory_place place, uint64_t bytes,
				 struct chunk **chunk)
{
	static char poison[CHUNK_ALIGN];
	int rc = backend_host_ops.chunk_new(device, place, bytes, chunk);

	memset(poison, POISON, sizeof(poison));
	for (uint64_t at = 0; rc == 0 && at < bytes; at += CHUNK_ALIGN)
		backend_host_ops.dma_in(NULL, *chunk, at, poison, CHUNK_ALIGN);
	return rc;
}

static inline void poison(struct backend *backend)
{
	static struct backend_ops ops;

	ops = backend_host_ops;
	ops.chunk_new = poisoned_chunk;
	backend->ops = &ops;
}

#endif
