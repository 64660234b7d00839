/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/stock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <utlist.h>

#include "backend/pool.h"
#include "common/cleanup.h"

struct stock {
	struct device *device;
	struct pool_budget *budget;
	uint64_t chunk_bytes;
	pthread_mutex_t lock; /* a leaf */
	struct stocked {
		struct chunk *chunk;
		struct stocked *next;
	} * list;
	_Atomic uint64_t bytes;
};

int stock_new(struct device *device, uint64_t chunk_bytes, struct pool_budget *budget,
	      struct stock **stock)
{
	struct stock *new_stock = calloc(1, sizeof(*new_stock));

	if (!new_stock)
		return -ENOMEM;
	new_stock->device = device;
	new_stock->budget = budget;
	new_stock->chunk_bytes = chunk_bytes;
	pthread_mutex_init(&new_stock->lock, NULL);
	*stock = new_stock;
	return 0;
}

static struct chunk *chunk_pop(struct stock *stock)
{
	struct stocked *first;
	struct chunk *chunk = NULL;

	{
		scoped_lock(&stock->lock);
		first = stock->list;
		if (first)
			LL_DELETE(stock->list, first);
	}
	if (first) {
		chunk = first->chunk;
		atomic_fetch_sub(&stock->bytes, chunk->bytes);
		atomic_fetch_sub(&stock->budget->stocked, chunk->bytes);
	}
	free(first);
	return chunk;
}

static bool chunk_push(struct stock *stock, struct chunk *chunk)
{
	struct stocked *entry = malloc(sizeof(*entry));

	if (!entry)
		return false;
	entry->chunk = chunk;
	atomic_fetch_add(&stock->bytes, chunk->bytes);
	scoped_lock(&stock->lock);
	LL_PREPEND(stock->list, entry);
	return true;
}

/* The budget's other users may hold what this stock has given back, so it is asked again each time.
 */
static bool exceeds_budget(const struct stock *stock)
{
	const struct pool_budget *budget = stock->budget;

	return atomic_load(&budget->held) + atomic_load(&budget->stocked) > budget->size;
}

struct chunk *stock_take(struct stock *stock, uint64_t bytes)
{
	struct chunk *chunk = bytes == stock->chunk_bytes ? chunk_pop(stock) : NULL;

	while (!chunk && exceeds_budget(stock)) {
		struct chunk *spare = chunk_pop(stock);

		if (!spare)
			break;
		chunk_free(spare);
	}
	return chunk;
}

bool stock_put(struct stock *stock, struct chunk *chunk)
{
	if (chunk->bytes != stock->chunk_bytes || chunk->pool_private ||
	    atomic_load(&chunk->handed_out) != CHUNK_KEPT || atomic_load(&chunk->lost) ||
	    atomic_load(&stock->device->failed) || !chunk_push(stock, chunk))
		return false;
	atomic_fetch_add(&stock->budget->stocked, chunk->bytes);
	return true;
}

bool stock_make(struct stock *stock, uint64_t bytes)
{
	struct pool_budget *budget = stock->budget;
	struct chunk *chunk;

	if (atomic_load(&stock->bytes) + stock->chunk_bytes > bytes)
		return false;
	/* Counted before the memory is made, so that the budget is never exceeded. */
	atomic_fetch_add(&budget->stocked, stock->chunk_bytes);
	if (exceeds_budget(stock) ||
	    chunk_new(stock->device, PLACE_HOST, stock->chunk_bytes, &chunk) < 0) {
		atomic_fetch_sub(&budget->stocked, stock->chunk_bytes);
		return false;
	}
	if (chunk_push(stock, chunk))
		return true;
	atomic_fetch_sub(&budget->stocked, stock->chunk_bytes);
	chunk_free(chunk);
	return false;
}

void stock_drop(struct stock *stock)
{
	struct chunk *chunk;

	while ((chunk = chunk_pop(stock)))
		chunk_free(chunk);
}

uint64_t stock_bytes(const struct stock *stock)
{
	return atomic_load(&stock->bytes);
}

void stock_free(struct stock *stock)
{
	if (!stock)
		return;
	stock_drop(stock);
	pthread_mutex_destroy(&stock->lock);
	free(stock);
}
