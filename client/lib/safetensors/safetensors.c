/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The parser accepts what the reference implementation accepts, with these exceptions: names that
 * an object has twice, of which the reference takes the last; names with a NUL, which jansson
 * cannot represent; spaces before the header; and entries of tensors written as lists. */
#include "client/lib/safetensors/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/error.h"
#include "client/lib/safetensors/document.h"

static int metadata_parse(json_t *metadata, struct safetensors *header)
{
	bool good = !metadata || json_is_null(metadata) || json_is_object(metadata);
	const char *key;
	json_t *value;

	header->metadata = calloc(json_object_size(metadata) + 1, sizeof(*header->metadata));
	if (!header->metadata)
		return client_fail(ENOMEM, "no memory for __metadata__");
	json_object_foreach (metadata, key, value) {
		good = good && json_is_string(value);
		header->metadata[header->api.n_metadata++] = (struct gpumem_metadata){
		    .key = key,
		    .value = json_string_value(value),
		    .value_bytes = json_string_length(value),
		};
	}
	return good ? 0 : client_fail(EINVAL, "__metadata__ is not an object of strings");
}

static int numbers_fail(const char *name, const char *field)
{
	return client_fail(EINVAL, "tensor %s: %s is not a list of numbers from 0 to 2^63-1",
			   client_text_show(name).text, field);
}

/* Gives the number of elements. The other numbers of an empty tensor's shape have the same limit.
 */
static int shape_parse(const char *name, json_t *list, uint64_t *shape, uint64_t *count)
{
	bool empty = false;
	json_t *number;
	size_t i;

	*count = 1;
	json_array_foreach (list, i, number) {
		uint64_t n = (uint64_t)json_integer_value(number);
		shape[i] = n;
		empty |= n == 0;
		if (n && (__builtin_mul_overflow(*count, n, count) || *count > INT64_MAX))
			return client_fail(EINVAL, "tensor %s: its shape is too large",
					   client_text_show(name).text);
	}
	if (empty)
		*count = 0;
	return 0;
}

static int tensor_check_size(const struct gpumem_tensor *tensor, unsigned bits_each, uint64_t count)
{
	unsigned __int128 bits = (unsigned __int128)count * bits_each;

	if (bits % 8)
		return client_fail(
		    EINVAL, "tensor %s: %" PRIu64 " elements of %u bits do not end at a byte",
		    client_text_show(tensor->name).text, count, bits_each);
	if (bits / 8 != tensor->size)
		return client_fail(EINVAL,
				   "tensor %s: %" PRIu64 " elements of %s are not the %" PRIu64
				   " bytes that its data_offsets hold",
				   client_text_show(tensor->name).text, count, tensor->dtype,
				   tensor->size);
	return 0;
}

static int tensor_parse_offsets(const char *name, json_t *offsets, uint64_t data_bytes,
				struct gpumem_tensor *tensor)
{
	if (!client_json_has_numbers(offsets))
		return numbers_fail(name, "data_offsets");
	if (json_array_size(offsets) != 2)
		return client_fail(EINVAL, "tensor %s: data_offsets are %zu numbers, not 2",
				   client_text_show(name).text, json_array_size(offsets));
	uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
	uint64_t end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
	if (begin > end)
		return client_fail(
		    EINVAL, "tensor %s: it begins at %" PRIu64 ", behind its end at %" PRIu64,
		    client_text_show(name).text, begin, end);
	if (end > data_bytes)
		return client_fail(EINVAL,
				   "tensor %s: it ends at %" PRIu64 "; the file has %" PRIu64
				   " bytes of data",
				   client_text_show(name).text, end, data_bytes);
	tensor->offset = begin;
	tensor->size = end - begin;
	return 0;
}

static int entry_check_fields(const char *name, json_t *entry)
{
	static const char *const fields[] = {"dtype", "shape", "data_offsets"};

	if (!json_is_object(entry))
		return client_fail(EINVAL, "tensor %s: its entry is not an object",
				   client_text_show(name).text);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (!json_object_get(entry, fields[i]))
			return client_fail(EINVAL, "tensor %s: no %s", client_text_show(name).text,
					   fields[i]);
	return 0;
}

/* shape: room for the numbers of the tensor's shape. The offset counts from the start of the data.
 */
static int tensor_parse(const char *name, json_t *entry, uint64_t data_bytes, uint64_t *shape,
			struct gpumem_tensor *tensor)
{
	json_t *list = json_object_get(entry, "shape"), *code = json_object_get(entry, "dtype");
	uint64_t count = 0;
	int rc = entry_check_fields(name, entry);

	if (rc < 0)
		return rc;
	const struct client_dtype *dtype = client_dtype_find(code);
	if (!dtype)
		return client_fail(
		    EINVAL, "tensor %s: unknown dtype %s", client_text_show(name).text,
		    json_is_string(code) ? client_text_show(json_string_value(code)).text
					 : "(no string)");
	if (!client_json_has_numbers(list))
		return numbers_fail(name, "shape");
	rc = tensor_parse_offsets(name, json_object_get(entry, "data_offsets"), data_bytes, tensor);
	if (rc == 0)
		rc = shape_parse(name, list, shape, &count);
	if (rc < 0)
		return rc;
	tensor->name = name;
	tensor->dtype = dtype->name;
	tensor->shape = shape;
	tensor->rank = (uint32_t)json_array_size(list);
	tensor->unit = dtype->bits < 8 ? 1 : dtype->bits / 8;
	return tensor_check_size(tensor, dtype->bits, count);
}

static int tensors_allocate(struct safetensors *header)
{
	size_t n = json_object_size(header->json), numbers = 0;
	const char *name;
	json_t *entry;

	json_object_foreach (header->json, name, entry)
		numbers += json_array_size(json_object_get(entry, "shape"));
	header->tensors = calloc(n + 1, sizeof(*header->tensors));
	header->shapes = calloc(numbers + 1, sizeof(*header->shapes));
	return header->tensors && header->shapes
		   ? 0
		   : client_fail(ENOMEM, "no memory for %zu tensors", n);
}

static int tensors_parse(struct safetensors *header)
{
	uint64_t *shape = header->shapes;
	const char *name;
	json_t *entry;

	json_object_foreach (header->json, name, entry) {
		struct gpumem_tensor *tensor = &header->tensors[header->api.n_tensors];
		if (!strcmp(name, "__metadata__"))
			continue;
		int rc = tensor_parse(name, entry, header->data_bytes, shape, tensor);
		if (rc < 0)
			return rc;
		shape += tensor->rank;
		header->api.n_tensors++;
	}
	return 0;
}

static int tensor_compare_places(const void *a, const void *b)
{
	const struct gpumem_tensor *first = *(const struct gpumem_tensor *const *)a;
	const struct gpumem_tensor *second = *(const struct gpumem_tensor *const *)b;

	if (first->offset != second->offset)
		return first->offset < second->offset ? -1 : 1;
	if (first->size != second->size)
		return first->size < second->size ? -1 : 1;
	return first < second ? -1 : first > second;
}

static int tensors_check_places(const struct gpumem_tensor *const *sorted, size_t n,
				uint64_t data_bytes)
{
	const char *previous = "";
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++) {
		const struct gpumem_tensor *tensor = sorted[i];
		if (tensor->offset < at)
			return client_fail(EINVAL,
					   "tensor %s overlaps %s: it begins at %" PRIu64
					   ", where that one ends at %" PRIu64,
					   client_text_show(tensor->name).text,
					   client_text_show(previous).text, tensor->offset, at);
		if (tensor->offset > at)
			return client_fail(EINVAL,
					   "tensor %s begins at %" PRIu64
					   ": the bytes from %" PRIu64 " on belong to none",
					   client_text_show(tensor->name).text, tensor->offset, at);
		at = tensor->offset + tensor->size;
		previous = tensor->name;
	}
	if (at != data_bytes)
		return client_fail(EINVAL,
				   "the tensors end at %" PRIu64 "; the file has %" PRIu64
				   " bytes of data",
				   at, data_bytes);
	return 0;
}

static int tensors_check_cover(const struct safetensors *header)
{
	size_t n = header->api.n_tensors;
	const struct gpumem_tensor **sorted = malloc((n + 1) * sizeof(const void *));

	if (!sorted)
		return client_fail(ENOMEM, "no memory for %zu tensors", n);
	for (size_t i = 0; i < n; i++)
		sorted[i] = &header->tensors[i];
	qsort(sorted, n, sizeof(const void *), tensor_compare_places);
	int rc = tensors_check_places(sorted, n, header->data_bytes);
	free(sorted);
	return rc;
}

static int header_parse(struct safetensors *header)
{
	int rc = client_json_load(header->text, header->text_bytes, "header", &header->json);

	if (rc == 0)
		rc = metadata_parse(json_object_get(header->json, "__metadata__"), header);
	if (rc == 0)
		rc = tensors_allocate(header);
	if (rc == 0)
		rc = tensors_parse(header);
	if (rc == 0)
		rc = tensors_check_cover(header);
	return rc;
}

int client_safetensors_parse(char *text, size_t bytes, uint64_t data_bytes,
			     struct safetensors **header)
{
	struct safetensors *new_header = calloc(1, sizeof(*new_header));

	if (!new_header) {
		free(text);
		return client_fail(ENOMEM, "no memory for a header");
	}
	new_header->text = text;
	new_header->text_bytes = bytes;
	new_header->data_bytes = data_bytes;
	int rc = header_parse(new_header);
	if (rc < 0) {
		client_safetensors_free(new_header);
		return rc;
	}
	new_header->api.tensors = new_header->tensors;
	new_header->api.metadata = new_header->metadata;
	client_safetensors_move(new_header, SAFETENSORS_LENGTH_BYTES + bytes, 1);
	*header = new_header;
	return 0;
}

void client_safetensors_free(struct safetensors *header)
{
	if (!header)
		return;
	json_decref(header->json);
	free(header->tensors);
	free(header->metadata);
	free(header->shapes);
	free(header->text);
	free(header);
}
