/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Chooses where the data of a safetensors file begins. All tensors move by the same number of
 * bytes, so a padding that aligns one tensor may misalign another. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/error.h"
#include "client/lib/safetensors/safetensors.h"

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

/* Where the tensor begins in the data. */
static uint64_t tensor_begin(const struct safetensors *header, const struct gpumem_tensor *tensor)
{
	return tensor->offset - header->api.data_start;
}

static void wishes_count(struct wishes *wishes, const struct safetensors *header)
{
	for (size_t i = 0; i < header->api.n_tensors; i++) {
		const struct gpumem_tensor *tensor = &header->tensors[i];
		uint64_t begin = tensor_begin(header, tensor);
		if (!tensor->size)
			continue;
		wishes->viewable[__builtin_ctz(tensor->unit)][-begin % tensor->unit]++;
		wishes->aligned[-begin % wishes->alignment]++;
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

static void choice_take_better(struct choice *best, struct choice candidate)
{
	if (candidate.viewable != best->viewable ? candidate.viewable > best->viewable
	    : candidate.aligned != best->aligned ? candidate.aligned > best->aligned
						 : candidate.padding < best->padding)
		*best = candidate;
}

/* Chooses the number of spaces behind a JSON of length bytes: or -ENOMEM. */
static int64_t padding_choose(const struct safetensors *header, size_t length, size_t alignment)
{
	struct wishes wishes = {.aligned = calloc(alignment, sizeof(uint32_t)),
				.alignment = alignment};
	uint64_t bare = SAFETENSORS_LENGTH_BYTES + length, modulus = alignment;
	const struct gpumem_tensor *end = header->tensors + header->api.n_tensors;

	if (!wishes.aligned)
		return client_fail(ENOMEM, "no memory for an alignment of %zu", alignment);
	for (const struct gpumem_tensor *tensor = header->tensors; tensor < end; tensor++)
		if (modulus < tensor->unit)
			modulus = tensor->unit;
	wishes_count(&wishes, header);
	struct choice best = wishes_choose(&wishes, bare, bare, modulus);
	/* If no tensor can be aligned, only the remainder of the largest unit matters. */
	for (uint64_t start = 0; start < SAFETENSORS_UNIT_MAX && start < modulus; start++)
		choice_take_better(&best, wishes_choose(&wishes, start, bare, modulus));
	for (const struct gpumem_tensor *tensor = header->tensors; tensor < end; tensor++)
		if (tensor->size)
			choice_take_better(
			    &best, wishes_choose(&wishes, -tensor_begin(header, tensor) % alignment,
						 bare, modulus));
	free(wishes.aligned);
	return (int64_t)best.padding;
}

void client_safetensors_move(struct safetensors *header, uint64_t data_start, size_t alignment)
{
	for (size_t i = 0; i < header->api.n_tensors; i++) {
		struct gpumem_tensor *tensor = &header->tensors[i];
		tensor->offset = data_start + tensor_begin(header, tensor);
		uint64_t at = tensor->size ? tensor->offset : 0;
		tensor->place = at % tensor->unit ? GPUMEM_MISALIGNED
				: at % alignment  ? GPUMEM_VIEWABLE
						  : GPUMEM_ALIGNED;
	}
	header->api.data_start = data_start;
}

int client_safetensors_pad(struct safetensors *header, size_t alignment)
{
	size_t length = header->text_bytes;

	while (header->text[length - 1] == ' ')
		length--;
	int64_t padding = padding_choose(header, length, alignment);
	if (padding < 0)
		return (int)padding;
	size_t bytes = length + (size_t)padding;
	if (bytes > SAFETENSORS_HEADER_MAX)
		return client_fail(EINVAL, "its header has no room for padding");
	char *text = realloc(header->text, bytes);
	if (!text)
		return client_fail(ENOMEM, "no memory for a header of %zu bytes", bytes);
	memset(text + length, ' ', bytes - length);
	header->text = text;
	header->text_bytes = bytes;
	client_safetensors_move(header, SAFETENSORS_LENGTH_BYTES + bytes, alignment);
	return 0;
}
