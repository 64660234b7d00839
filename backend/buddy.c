/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/buddy.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define ROOT 1u

/* The nodes of an order are [first, 2 * first). */
static unsigned first_node(unsigned order)
{
	return 1u << (BUDDY_MAX_ORDER - order);
}

static unsigned node_at(uint64_t offset, unsigned order)
{
	return first_node(order) + (unsigned)(offset >> order);
}

static uint64_t node_offset(unsigned node, unsigned order)
{
	return (uint64_t)(node - first_node(order)) << order;
}

static bool is_free(const struct buddy *buddy, unsigned node)
{
	return buddy->free_bits[node / 64] >> node % 64 & 1;
}

static void set_free(struct buddy *buddy, unsigned node)
{
	buddy->free_bits[node / 64] |= 1ULL << node % 64;
}

static void clear_free(struct buddy *buddy, unsigned node)
{
	buddy->free_bits[node / 64] &= ~(1ULL << node % 64);
}

/* The first free block of exactly this order, or 0. */
static unsigned free_find(const struct buddy *buddy, unsigned order)
{
	unsigned first = first_node(order), end = 2 * first;

	if (end <= 64) { /* several orders share the first word */
		uint64_t bits = buddy->free_bits[0] & ((1ULL << first) - 1) << first;
		return bits ? (unsigned)__builtin_ctzll(bits) : 0;
	}
	for (unsigned word = first / 64; word < end / 64; word++)
		if (buddy->free_bits[word])
			return word * 64 + (unsigned)__builtin_ctzll(buddy->free_bits[word]);
	return 0;
}

static unsigned order_for(uint64_t bytes)
{
	unsigned order = 64 - (unsigned)__builtin_clzll(bytes - 1);

	return order < BUDDY_MIN_ORDER ? BUDDY_MIN_ORDER : order;
}

static void assert_range(uint64_t offset, uint64_t bytes)
{
	assert(bytes > 0 && bytes <= BUDDY_BYTES && offset <= BUDDY_BYTES - bytes);
	assert(offset % (1u << BUDDY_MIN_ORDER) == 0 && bytes % (1u << BUDDY_MIN_ORDER) == 0);
	(void)offset;
	(void)bytes;
}

void buddy_init(struct buddy *buddy)
{
	memset(buddy, 0, sizeof(*buddy));
	set_free(buddy, ROOT);
	buddy->free_bytes = BUDDY_BYTES;
}

/* Allocates the block of this order at node, by splitting a free block of order have. */
static unsigned block_split(struct buddy *buddy, unsigned node, unsigned have, unsigned order)
{
	clear_free(buddy, node);
	for (; have > order; have--) {
		node *= 2;
		set_free(buddy, node + 1);
	}
	return node;
}

int buddy_alloc(struct buddy *buddy, uint64_t bytes, uint64_t *offset)
{
	unsigned order = order_for(bytes);

	assert_range(0, bytes);
	for (unsigned have = order; have <= BUDDY_MAX_ORDER; have++) {
		unsigned node = free_find(buddy, have);
		if (!node)
			continue;

		uint64_t start = node_offset(block_split(buddy, node, have, order), order);
		uint64_t surplus = (1ULL << order) - bytes;

		buddy->free_bytes -= 1ULL << order;
		if (surplus)
			buddy_free(buddy, start + bytes, surplus);
		*offset = start;
		return 0;
	}
	return -ENOSPC;
}

static void assert_taken(const struct buddy *buddy, unsigned node)
{
	for (; node; node /= 2)
		assert(!is_free(buddy, node));
	(void)buddy;
}

static void block_free(struct buddy *buddy, uint64_t offset, unsigned order)
{
	unsigned node = node_at(offset, order);

	assert_taken(buddy, node);
	while (node > ROOT && is_free(buddy, node ^ 1)) {
		clear_free(buddy, node ^ 1);
		node /= 2;
	}
	set_free(buddy, node);
	buddy->free_bytes += 1ULL << order;
}

/* The largest order of a block that starts at offset and fits into bytes. */
static unsigned block_order(uint64_t offset, uint64_t bytes)
{
	unsigned fits = 63 - (unsigned)__builtin_clzll(bytes);
	unsigned aligned = offset ? (unsigned)__builtin_ctzll(offset) : BUDDY_MAX_ORDER;

	return fits < aligned ? fits : aligned;
}

void buddy_free(struct buddy *buddy, uint64_t offset, uint64_t bytes)
{
	assert_range(offset, bytes);
	while (bytes) {
		unsigned order = block_order(offset, bytes);

		block_free(buddy, offset, order);
		offset += 1ULL << order;
		bytes -= 1ULL << order;
	}
}

/* The free block that contains the block at node, or 0; then *order is the free block's. */
static unsigned free_above(const struct buddy *buddy, unsigned node, unsigned *order)
{
	for (; node; node /= 2, ++*order)
		if (is_free(buddy, node))
			return node;
	return 0;
}

/* Cuts the block of this order at offset out of the free block around it. */
static void block_carve(struct buddy *buddy, unsigned from, unsigned have, uint64_t offset,
			unsigned order)
{
	clear_free(buddy, from);
	while (have > order) {
		unsigned node = node_at(offset, --have);

		set_free(buddy, node ^ 1);
	}
	buddy->free_bytes -= 1ULL << order;
}

int buddy_alloc_at(struct buddy *buddy, uint64_t offset, uint64_t bytes)
{
	uint64_t start = offset;

	assert_range(offset, bytes);
	while (bytes) {
		unsigned order = block_order(offset, bytes), have = order;
		unsigned from = free_above(buddy, node_at(offset, order), &have);

		/* A block that is partly free: look at the first free half, and so on downwards. */
		while (!from && order > BUDDY_MIN_ORDER) {
			have = --order;
			from = free_above(buddy, node_at(offset, order), &have);
		}
		if (!from) {
			if (offset > start)
				buddy_free(buddy, start, offset - start);
			return -EEXIST;
		}
		block_carve(buddy, from, have, offset, order);
		offset += 1ULL << order;
		bytes -= 1ULL << order;
	}
	return 0;
}

uint64_t buddy_largest(const struct buddy *buddy)
{
	for (unsigned order = BUDDY_MAX_ORDER; order >= BUDDY_MIN_ORDER; order--)
		if (free_find(buddy, order))
			return 1ULL << order;
	return 0;
}
