/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Chooses where the data of a safetensors file begins. All tensors move by the same number of
 * bytes, so a padding that aligns one tensor may misalign another. */
#include <errno.h>
#include <stdlib.h>

#include "client/core/error.h"
#include "client/lib/safetensors.h"

#define UNITS 5 /* 1, 2, 4, 8 and 16 bytes */

/* For each remainder of the data's start, the number of tensors that this start suits: to be
 * viewable (by unit), and to be aligned. */
struct wishes {
	uint32_t viewable[UNITS][SAFETENSORS_UNIT_MAX];
	uint32_t *aligned;
	size_t alignment;
};

struct choice {
	uint64_t viewable, aligned, padding;
};

static void wishes_count(struct wishes *wishes, const struct safetensors *header)
{
	for (size_t i = 0; i < header->n_tensors; i++) {
		const struct safetensors_tensor *tensor = &header->tensors[i];
		if (tensor->begin == tensor->end)
			continue;
		wishes->viewable[__builtin_ctz(tensor->unit)][-tensor->begin % tensor->unit]++;
		wishes->aligned[-tensor->begin % wishes->alignment]++;
	}
}

/* The result if the data begins at this remainder of the modulus. */
static struct choice wishes_choose(const struct wishes *wishes, uint64_t start, uint64_t bare,
				   uint64_t modulus)
{
	struct choice choice = {.aligned = wishes->aligned[start % wishes->alignment],
				.padding = (start - bare) % modulus};

	for (unsigned i = 0; i < UNITS; i++)
		choice.viewable += wishes->viewable[i][start % (1U << i)];
	return choice;
}

static void choice_take_better(struct choice *best, struct choice other)
{
	if (other.viewable != best->viewable ? other.viewable > best->viewable
	    : other.aligned != best->aligned ? other.aligned > best->aligned
					     : other.padding < best->padding)
		*best = other;
}

int64_t client_safetensors_padding(const struct safetensors *header, size_t length,
				   size_t alignment)
{
	struct wishes wishes = {.aligned = calloc(alignment, sizeof(uint32_t)),
				.alignment = alignment};
	uint64_t bare = SAFETENSORS_LENGTH_BYTES + length, modulus = alignment;

	if (!wishes.aligned)
		return client_fail(ENOMEM, "no memory for an alignment of %zu", alignment);
	for (size_t i = 0; i < header->n_tensors; i++)
		if (modulus < header->tensors[i].unit)
			modulus = header->tensors[i].unit;
	wishes_count(&wishes, header);
	struct choice best = wishes_choose(&wishes, bare, bare, modulus);
	/* If no tensor can be aligned, only the remainder of the largest unit matters. */
	for (uint64_t start = 0; start < SAFETENSORS_UNIT_MAX && start < modulus; start++)
		choice_take_better(&best, wishes_choose(&wishes, start, bare, modulus));
	for (size_t i = 0; i < header->n_tensors; i++)
		if (header->tensors[i].begin < header->tensors[i].end)
			choice_take_better(
			    &best, wishes_choose(&wishes, -header->tensors[i].begin % alignment,
						 bare, modulus));
	free(wishes.aligned);
	return (int64_t)best.padding;
}
