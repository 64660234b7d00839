/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/safetensors/tensor_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/error.h"
#include "client/lib/safetensors/document.h"

#define INDEX_VERSION 1

static int entry_fail(const char *name, const char *fault)
{
	return client_fail(EINVAL, "tensor %s: %s", client_text_show(name).text, fault);
}

static bool number_read(json_t *value, uint64_t *number)
{
	*number = (uint64_t)json_integer_value(value);
	return json_is_integer(value) && json_integer_value(value) >= 0;
}

static bool name_is_valid(const char *name, size_t bytes)
{
	return *name && strlen(name) == bytes && !strchr(name, '/') && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0;
}

static int files_parse(json_t *files, struct tensor_index *index)
{
	json_t *file;
	size_t i = 0;

	index->files = calloc(json_array_size(files) + 1, sizeof(*index->files));
	index->inodes = calloc(json_array_size(files) + 1, sizeof(*index->inodes));
	if (!index->files || !index->inodes)
		return client_fail(ENOMEM, "no memory for the files of an index");
	if (!json_is_array(files))
		return client_fail(EINVAL, "the index has no list of files");
	json_array_foreach (files, i, file) {
		json_t *name = json_object_get(file, "name");

		if (!json_is_string(name) ||
		    !name_is_valid(json_string_value(name), json_string_length(name)) ||
		    !number_read(json_object_get(file, "inode"), &index->inodes[i]))
			return client_fail(EINVAL,
					   "file %zu of the index is no file of its directory", i);
		index->files[i] = json_string_value(name);
	}
	index->api.n_files = json_array_size(files);
	return 0;
}

static const uint64_t *numbers_copy(json_t *list, uint64_t **room)
{
	uint64_t *numbers = *room;
	json_t *number;
	size_t i;

	json_array_foreach (list, i, number)
		numbers[i] = (uint64_t)json_integer_value(number);
	*room += json_array_size(list);
	return numbers;
}

/* The strides of C order. False: they are too large. */
static bool strides_make(const struct gpumem_set_tensor *tensor, uint64_t *strides)
{
	uint64_t elements = 1;

	for (uint32_t i = tensor->rank; i-- > 0;) {
		strides[i] = elements;
		if (__builtin_mul_overflow(elements, tensor->shape[i] ? tensor->shape[i] : 1,
					   &elements) ||
		    elements > INT64_MAX)
			return false;
	}
	return true;
}

/* Sets the size: from the first element to the end of the last element. */
static bool size_measure(struct gpumem_set_tensor *tensor)
{
	uint64_t last = 0, step;

	for (uint32_t i = 0; i < tensor->rank; i++) {
		if (!tensor->shape[i])
			return true;
		if (__builtin_mul_overflow(tensor->shape[i] - 1, tensor->strides[i], &step) ||
		    __builtin_add_overflow(last, step, &last))
			return false;
	}
	return !__builtin_add_overflow(last, 1, &last) &&
	       !__builtin_mul_overflow(last, tensor->unit, &tensor->size) &&
	       tensor->size <= INT64_MAX;
}

/* Shape and strides. */
static int layout_parse(const char *name, json_t *entry, uint64_t **room,
			struct gpumem_set_tensor *tensor)
{
	json_t *shape = json_object_get(entry, "shape"),
	       *strides = json_object_get(entry, "strides");
	bool good = client_json_has_numbers(shape) &&
		    (!strides || (client_json_has_numbers(strides) &&
				  json_array_size(strides) == json_array_size(shape)));

	if (!good)
		return entry_fail(name, "its shape or strides are wrong");
	tensor->rank = (uint32_t)json_array_size(shape);
	tensor->shape = numbers_copy(shape, room);
	tensor->strides = *room;
	if (strides)
		numbers_copy(strides, room);
	else if (strides_make(tensor, *room))
		*room += tensor->rank;
	else
		good = false;
	return good && size_measure(tensor) ? 0 : entry_fail(name, "it is too large");
}

static int place_parse(const char *name, json_t *entry, size_t n_files,
		       struct gpumem_set_tensor *tensor)
{
	uint64_t file;

	if (!tensor->size)
		return 0;
	if (!number_read(json_object_get(entry, "file"), &file) || file >= n_files)
		return entry_fail(name, "it is in none of the files");
	if (!number_read(json_object_get(entry, "offset"), &tensor->offset) ||
	    tensor->offset % tensor->unit)
		return entry_fail(name, "its offset is wrong");
	tensor->file = (uint32_t)file;
	return 0;
}

static int tensor_parse(const char *name, json_t *entry, size_t n_files, uint64_t **room,
			struct gpumem_set_tensor *tensor)
{
	const struct client_dtype *dtype = client_dtype_find(json_object_get(entry, "dtype"));

	if (!dtype || dtype->bits % 8)
		return entry_fail(name, "its dtype is unknown");
	*tensor =
	    (struct gpumem_set_tensor){.name = name, .dtype = dtype->name, .unit = dtype->bits / 8};
	int rc = layout_parse(name, entry, room, tensor);

	return rc < 0 ? rc : place_parse(name, entry, n_files, tensor);
}

static int tensors_parse(json_t *tensors, struct tensor_index *index)
{
	size_t numbers = 0;
	const char *name;
	json_t *entry;

	if (!json_is_object(tensors))
		return client_fail(EINVAL, "the index has no tensors");
	json_object_foreach (tensors, name, entry)
		numbers += 2 * json_array_size(json_object_get(entry, "shape"));
	index->tensors = calloc(json_object_size(tensors) + 1, sizeof(*index->tensors));
	index->numbers = calloc(numbers + 1, sizeof(*index->numbers));
	if (!index->tensors || !index->numbers)
		return client_fail(ENOMEM, "no memory for the tensors of an index");
	uint64_t *room = index->numbers;

	json_object_foreach (tensors, name, entry) {
		int rc = tensor_parse(name, entry, index->api.n_files, &room,
				      &index->tensors[index->api.n_tensors]);

		if (rc < 0)
			return rc;
		index->api.n_tensors++;
	}
	return 0;
}

static int index_parse(const char *text, size_t bytes, struct tensor_index *index)
{
	uint64_t version;
	int rc = client_json_load(text, bytes, "index", &index->json);

	if (rc < 0)
		return rc;
	if (!number_read(json_object_get(index->json, "gpumem_tensors"), &version) ||
	    version != INDEX_VERSION)
		return client_fail(EINVAL, "no index of tensors of version %d", INDEX_VERSION);
	rc = files_parse(json_object_get(index->json, "files"), index);
	return rc < 0 ? rc : tensors_parse(json_object_get(index->json, "tensors"), index);
}

int client_tensor_index_parse(const char *text, size_t bytes, struct tensor_index **index)
{
	struct tensor_index *new_index = calloc(1, sizeof(*new_index));

	if (!new_index)
		return client_fail(ENOMEM, "no memory for an index");
	int rc = index_parse(text, bytes, new_index);

	if (rc < 0) {
		client_tensor_index_free(new_index);
		return rc;
	}
	new_index->api.files = new_index->files;
	new_index->api.tensors = new_index->tensors;
	*index = new_index;
	return 0;
}

void client_tensor_index_free(struct tensor_index *index)
{
	if (!index)
		return;
	json_decref(index->json);
	free(index->directory);
	free(index->files);
	free(index->inodes);
	free(index->tensors);
	free(index->numbers);
	free(index);
}
