/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Headers of safetensors files. The first byte of the input selects the wanted alignment, the next
 * two bytes are the size of the file's data (little-endian), the rest is the header. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/safetensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The shape of a tensor with elements of whole bytes says the tensor's size. */
static void check_shape(const struct gpumem_tensor *tensor)
{
	uint64_t elements = 1;

	for (uint32_t i = 0; i < tensor->rank; i++)
		if (!tensor->shape[i])
			elements = 0;
	for (uint32_t i = 0; elements && i < tensor->rank; i++)
		elements *= tensor->shape[i];
	if (strcmp(tensor->dtype, "F4") && strncmp(tensor->dtype, "F6_", 3) &&
	    elements * tensor->unit != tensor->size)
		abort();
}

/* In an accepted header every byte of the data belongs to exactly one tensor. Empty tensors own no
 * byte. */
static void check_cover(const struct gpumem_safetensors *header, uint64_t data_bytes)
{
	unsigned char *covered = calloc(data_bytes + 1, 1);
	uint64_t sum = 0;

	for (size_t i = 0; i < header->n_tensors; i++) {
		const struct gpumem_tensor *tensor = &header->tensors[i];
		uint64_t begin = tensor->offset - header->data_start;
		if (begin > data_bytes || tensor->size > data_bytes - begin || !*tensor->dtype ||
		    tensor->size % tensor->unit || strlen(tensor->name) > 1 << 20)
			abort();
		check_shape(tensor);
		for (uint64_t at = begin; at < begin + tensor->size; at++)
			if (covered[at]++)
				abort();
		sum += tensor->size;
	}
	if (sum != data_bytes)
		abort();
	free(covered);
}

static void check_metadata(const struct gpumem_safetensors *header)
{
	for (size_t i = 0; i < header->n_metadata; i++)
		if (!header->metadata[i].key ||
		    header->metadata[i].value[header->metadata[i].value_bytes])
			abort();
}

/* The number of tensors that can be viewed if the data moves by so many bytes. */
static uint64_t viewable(const struct gpumem_safetensors *header, uint64_t by)
{
	uint64_t n = 0;

	for (size_t i = 0; i < header->n_tensors; i++)
		n += (header->tensors[i].offset + by) % header->tensors[i].unit == 0 &&
		     header->tensors[i].size;
	return n;
}

/* No other padding makes more tensors viewable. */
static void check_padding(struct safetensors *header, uint64_t data_bytes, size_t alignment)
{
	size_t spaces = 0;

	if (client_safetensors_pad(header, alignment) < 0)
		abort();
	check_cover(&header->api, data_bytes);
	if (header->api.data_start != SAFETENSORS_LENGTH_BYTES + header->text_bytes)
		abort();
	while (header->text[header->text_bytes - 1 - spaces] == ' ')
		spaces++;
	if (spaces >= alignment && spaces >= SAFETENSORS_UNIT_MAX)
		abort();
	for (uint64_t by = 1; by < SAFETENSORS_UNIT_MAX; by++)
		if (viewable(&header->api, by) > viewable(&header->api, 0))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct safetensors *header = NULL;

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
		check_cover(&header->api, data_bytes);
		check_metadata(&header->api);
		check_padding(header, data_bytes, alignment);
	}
	client_safetensors_free(header);
	return 0;
}
