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
#include "common/cleanup.h"
#include "common/text/utf8.h"

/* As deep as the reference implementation goes: jansson recurses on the stack of the calling
 * thread, which may be small. */
#define DEPTH_MAX 127

/* The largest integer that jansson reads. */
#define INTEGER_MAX "9223372036854775807"

#define SHOWN_BYTES 80

static const struct dtype {
	const char *name;
	unsigned bits;
} dtype_table[] = {
    {"BOOL", 8},    {"I8", 8},	    {"I16", 16},	{"I32", 32},	    {"I64", 64},
    {"U8", 8},	    {"U16", 16},    {"U32", 32},	{"U64", 64},	    {"F16", 16},
    {"F32", 32},    {"F64", 64},    {"BF16", 16},	{"C64", 64},	    {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
};

struct shown {
	char text[SHOWN_BYTES + 8];
};

/* Text of the file for a message: in quotes, in one line, of limited length. */
static struct shown text_show(const char *text, size_t bytes)
{
	char part[SHOWN_BYTES + 1] = "";
	struct shown shown = {"'"};
	size_t n = bytes <= SHOWN_BYTES ? bytes : SHOWN_BYTES;

	/* The text is not cut in the middle of a character. */
	while (n < bytes && n && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	memcpy(part, text, n);
	const char *rest = utf8_escape(part, "", shown.text + 1, SHOWN_BYTES + 1);
	strcat(shown.text, *rest || n < bytes ? "...'" : "'");
	return shown;
}

static struct shown string_show(const char *text)
{
	return text_show(text, strlen(text));
}

/* The duplicate key that ends before end. */
static struct shown key_show(const char *text, size_t end)
{
	size_t at = end ? end - 1 : 0, slashes;

	for (;;) {
		if (!at--)
			return text_show("", 0);
		if (text[at] != '"')
			continue;
		for (slashes = 0; slashes < at && text[at - slashes - 1] == '\\'; slashes++)
			;
		if (slashes % 2 == 0)
			return text_show(text + at + 1, end - at - 2);
	}
}

/* The place of the quote that ends the string; bytes: the string has no end. */
static size_t string_end(const char *text, size_t bytes, size_t start)
{
	size_t at = start + 1;

	while (at < bytes && text[at] != '"')
		at += text[at] == '\\' ? 2 : 1;
	return at < bytes ? at : bytes;
}

static int header_check_depth(const char *text, size_t bytes)
{
	unsigned depth = 0;

	for (size_t i = 0; i < bytes; i++) {
		if (text[i] == '"')
			i = string_end(text, bytes, i);
		else if (text[i] == '{' || text[i] == '[')
			depth++;
		else if ((text[i] == '}' || text[i] == ']') && depth)
			depth--;
		if (depth > DEPTH_MAX)
			return client_fail(EINVAL, "the header is nested too deeply");
	}
	return 0;
}

/* Of a number as text: n characters. */
static bool integer_is_large(const char *number, size_t n)
{
	const char *digits = number + (*number == '-');
	const size_t n_digits = n - (size_t)(digits - number), n_max = strlen(INTEGER_MAX);

	return strspn(digits, "0123456789") >= n_digits &&
	       (n_digits > n_max || (n_digits == n_max && memcmp(digits, INTEGER_MAX, n_max) > 0));
}

/* Larger integers, which fields unknown to the format may have, get a decimal point: jansson would
 * fail. Fields of the format accept neither. */
static void integers_add_point(char *text, size_t bytes)
{
	for (size_t i = 0, n; i < bytes; i += n + 1) {
		n = strspn(text + i, "0123456789.eE+-");
		if (text[i] == '"')
			n = string_end(text, bytes, i) - i;
		else if (n && integer_is_large(text + i, n))
			text[i + n - 2] = '.';
	}
}

static int json_fail(const json_error_t *error, const char *text)
{
	if (json_error_code(error) == json_error_out_of_memory)
		return client_fail(ENOMEM, "no memory for a header");
	if (json_error_code(error) == json_error_duplicate_key)
		return client_fail(EINVAL, "%s is there twice",
				   key_show(text, (size_t)error->position).text);
	return client_fail(EINVAL, "the header is not as the format has it: %s, at byte %d",
			   string_show(error->text).text, error->position);
}

static int header_load(const char *text, size_t bytes, json_t **json)
{
	json_error_t error;

	if (!bytes || text[0] != '{')
		return client_fail(EINVAL, "the header does not begin with '{'");
	/* jansson skips a NUL behind a number. */
	if (memchr(text, '\0', bytes))
		return client_fail(EINVAL, "the header contains a NUL");
	int rc = header_check_depth(text, bytes);
	if (rc < 0)
		return rc;
	AUTO_FREE char *copy = malloc(bytes + 1);
	if (!copy)
		return client_fail(ENOMEM, "no memory for a header of %zu bytes", bytes);
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	integers_add_point(copy, bytes);
	*json = json_loadb(copy, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
	return *json ? 0 : json_fail(&error, text);
}

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

static bool json_is_number_list(json_t *list)
{
	json_t *number;
	size_t i;

	json_array_foreach (list, i, number)
		if (!json_is_integer(number) || json_integer_value(number) < 0)
			return false;
	return json_is_array(list);
}

static int numbers_fail(const char *name, const char *field)
{
	return client_fail(EINVAL, "tensor %s: %s is not a list of numbers from 0 to 2^63-1",
			   string_show(name).text, field);
}

static const struct dtype *dtype_find(json_t *code)
{
	for (size_t i = 0; i < sizeof(dtype_table) / sizeof(dtype_table[0]); i++)
		if (json_is_string(code) &&
		    json_string_length(code) == strlen(dtype_table[i].name) &&
		    !strcmp(json_string_value(code), dtype_table[i].name))
			return &dtype_table[i];
	return NULL;
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
					   string_show(name).text);
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
		    string_show(tensor->name).text, count, bits_each);
	if (bits / 8 != tensor->size)
		return client_fail(EINVAL,
				   "tensor %s: %" PRIu64 " elements of %s are not the %" PRIu64
				   " bytes that its data_offsets hold",
				   string_show(tensor->name).text, count, tensor->dtype,
				   tensor->size);
	return 0;
}

static int tensor_parse_offsets(const char *name, json_t *offsets, uint64_t data_bytes,
				struct gpumem_tensor *tensor)
{
	if (!json_is_number_list(offsets))
		return numbers_fail(name, "data_offsets");
	if (json_array_size(offsets) != 2)
		return client_fail(EINVAL, "tensor %s: data_offsets are %zu numbers, not 2",
				   string_show(name).text, json_array_size(offsets));
	uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
	uint64_t end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
	if (begin > end)
		return client_fail(
		    EINVAL, "tensor %s: it begins at %" PRIu64 ", behind its end at %" PRIu64,
		    string_show(name).text, begin, end);
	if (end > data_bytes)
		return client_fail(EINVAL,
				   "tensor %s: it ends at %" PRIu64 "; the file has %" PRIu64
				   " bytes of data",
				   string_show(name).text, end, data_bytes);
	tensor->offset = begin;
	tensor->size = end - begin;
	return 0;
}

static int entry_check_fields(const char *name, json_t *entry)
{
	static const char *const fields[] = {"dtype", "shape", "data_offsets"};

	if (!json_is_object(entry))
		return client_fail(EINVAL, "tensor %s: its entry is not an object",
				   string_show(name).text);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (!json_object_get(entry, fields[i]))
			return client_fail(EINVAL, "tensor %s: no %s", string_show(name).text,
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
	const struct dtype *dtype = dtype_find(code);
	if (!dtype)
		return client_fail(EINVAL, "tensor %s: unknown dtype %s", string_show(name).text,
				   json_is_string(code) ? string_show(json_string_value(code)).text
							: "(no string)");
	if (!json_is_number_list(list))
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
					   string_show(tensor->name).text,
					   string_show(previous).text, tensor->offset, at);
		if (tensor->offset > at)
			return client_fail(EINVAL,
					   "tensor %s begins at %" PRIu64
					   ": the bytes from %" PRIu64 " on belong to none",
					   string_show(tensor->name).text, tensor->offset, at);
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
	int rc = header_load(header->text, header->text_bytes, &header->json);

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
