/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Chunks of system memory that a pool keeps for the next allocations of the same size, or makes
 * ahead: making system memory that a GPU addresses takes 0.25 s for a GiB on the reference machine,
 * ten times as long as moving the bytes. */
#ifndef BACKEND_STOCK_H
#define BACKEND_STOCK_H

#include "backend/backend.h"

struct pool_budget;
struct stock;

/* For chunks of chunk_bytes in PLACE_HOST. Together with the memory that the budget's pools hold,
 * the stock stays within the budget. */
int stock_new(struct device *device, uint64_t chunk_bytes, struct pool_budget *budget,
	      struct stock **stock);
void stock_free(struct stock *stock); /* NULL is allowed */

/* All functions are thread-safe. A chunk for bytes that the budget counts already, or NULL: then as
 * much of the stock is freed as the budget needs. */
struct chunk *stock_take(struct stock *stock, uint64_t bytes);
/* Keeps a chunk that the budget still counts; false: the caller frees the chunk. Memory that
 * another process may have is never kept. */
bool stock_put(struct stock *stock, struct chunk *chunk);
/* Makes a chunk ahead; false: the stock has this many bytes, or the budget or the system has no
 * more. */
bool stock_make(struct stock *stock, uint64_t bytes);
void stock_drop(struct stock *stock);
uint64_t stock_bytes(const struct stock *stock);

#endif
