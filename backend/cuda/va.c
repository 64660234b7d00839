/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/cuda/va.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "backend/backend.h"

int va_init(struct va *va, uint64_t bytes)
{
	assert(bytes % CHUNK_ALIGN == 0);
	uint64_t units = bytes / CHUNK_ALIGN;
	uint64_t *words = calloc((units + 63) / 64, sizeof(*words));
	if (!words)
		return -ENOMEM;
	*va = (struct va){.words = words, .units = units};
	return 0;
}

void va_destroy(struct va *va)
{
	free(va->words);
	*va = (struct va){0};
}

/* The first unit at or after from that is allocated (or free); va->units if there is none. */
static uint64_t va_find(const struct va *va, uint64_t from, bool allocated)
{
	uint64_t unit = from;
	while (unit < va->units) {
		uint64_t word = va->words[unit / 64];
		uint64_t rest = (allocated ? word : ~word) >> (unit % 64);
		if (rest) {
			unit += (uint64_t)__builtin_ctzll(rest);
			return unit < va->units ? unit : va->units;
		}
		unit = (unit / 64 + 1) * 64;
	}
	return va->units;
}

static void va_mark(struct va *va, uint64_t first, uint64_t units, bool allocated)
{
	for (uint64_t unit = first; unit < first + units;) {
		uint64_t bit = unit % 64;
		uint64_t n_bits = 64 - bit;
		if (n_bits > first + units - unit)
			n_bits = first + units - unit;
		uint64_t mask = (n_bits == 64 ? UINT64_MAX : (1ULL << n_bits) - 1) << bit;
		uint64_t *word = &va->words[unit / 64];
		assert((*word & mask) == (allocated ? 0 : mask));
		*word = allocated ? *word | mask : *word & ~mask;
		unit += n_bits;
	}
}

int va_alloc(struct va *va, uint64_t bytes, uint64_t *offset)
{
	assert(bytes > 0 && bytes % CHUNK_ALIGN == 0);
	uint64_t want = bytes / CHUNK_ALIGN;
	uint64_t hole = va_find(va, 0, false);
	while (hole < va->units) {
		uint64_t end = va_find(va, hole, true);
		if (end - hole >= want) {
			va_mark(va, hole, want, true);
			*offset = hole * CHUNK_ALIGN;
			return 0;
		}
		hole = va_find(va, end, false);
	}
	return -ENOSPC;
}

void va_free(struct va *va, uint64_t offset, uint64_t bytes)
{
	assert(offset % CHUNK_ALIGN == 0 && bytes % CHUNK_ALIGN == 0);
	assert(offset / CHUNK_ALIGN + bytes / CHUNK_ALIGN <= va->units);
	va_mark(va, offset / CHUNK_ALIGN, bytes / CHUNK_ALIGN, false);
}
