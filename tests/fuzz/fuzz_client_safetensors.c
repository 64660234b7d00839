/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Headers of safetensors files. The first byte of the input selects the wanted alignment, the next
 * two bytes are the size of the file's data (little-endian), the rest is the header. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In an accepted header every byte of the data belongs to exactly one tensor. Empty tensors own no
 * byte. */
static void check_cover(const struct safetensors *header, uint64_t data_bytes)
{
	unsigned char *covered = calloc(data_bytes + 1, 1);
	uint64_t sum = 0;

	for (size_t i = 0; i < header->n_tensors; i++) {
		const struct safetensors_tensor *tensor = &header->tensors[i];
		if (tensor->begin > tensor->end || tensor->end > data_bytes || !*tensor->dtype ||
		    (tensor->end - tensor->begin) % tensor->unit || tensor->number != i ||
		    strlen(tensor->name) > 1 << 20)
			abort();
		for (uint64_t at = tensor->begin; at < tensor->end; at++)
			if (covered[at]++)
				abort();
		sum += tensor->end - tensor->begin;
	}
	if (sum != data_bytes)
		abort();
	free(covered);
}

static uint64_t viewable(const struct safetensors *header, uint64_t start)
{
	uint64_t n = 0;

	for (size_t i = 0; i < header->n_tensors; i++)
		n += (start + header->tensors[i].begin) % header->tensors[i].unit == 0 &&
		     header->tensors[i].begin < header->tensors[i].end;
	return n;
}

/* No other padding makes more tensors viewable. */
static void check_padding(const struct safetensors *header, size_t length, size_t alignment)
{
	int64_t padding = client_safetensors_padding(header, length, alignment);

	if (padding < 0 || (padding >= (int64_t)alignment && padding >= SAFETENSORS_UNIT_MAX))
		abort();
	uint64_t got = viewable(header, 8 + length + (uint64_t)padding);
	for (uint64_t other = 0; other < SAFETENSORS_UNIT_MAX; other++)
		if (viewable(header, 8 + length + other) > got)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct safetensors header = {0};

	if (size < 3)
		return 0;
	size_t alignment = (size_t)1 << data[0] % 13, length = size - 3;
	uint64_t data_bytes = data[1] | data[2] << 8;
	/* The copy has exactly the input's size, so that the sanitizer detects a read past the end.
	 */
	char *text = malloc(length ? length : 1);
	if (!text)
		return 0;
	memcpy(text, data + 3, length);
	if (client_safetensors_parse(text, length, data_bytes, &header) == 0) {
		check_cover(&header, data_bytes);
		check_padding(&header, length, alignment);
	}
	client_safetensors_free(&header);
	free(text);
	return 0;
}
