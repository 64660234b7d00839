/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Indexes of sets of tensors, in the format of docs/sharing.md. They may be hostile. */
#ifndef CLIENT_LIB_SAFETENSORS_TENSOR_INDEX_H
#define CLIENT_LIB_SAFETENSORS_TENSOR_INDEX_H

#include <jansson.h>
#include <stdint.h>

#include "client/lib/gpumem.h"

struct tensor_index {
	struct gpumem_set api; /* what callers of the library see; the first member */
	char *directory;
	const char **files;
	uint64_t *inodes; /* of the files */
	struct gpumem_set_tensor *tensors;
	uint64_t *numbers; /* of all shapes and strides */
	json_t *json;	   /* owns the names */
};

/* Parses an index. -EINVAL, with a text; -ENOMEM. The caller sets directory, and frees it with the
 * index. */
int client_tensor_index_parse(const char *text, size_t bytes, struct tensor_index **index);
void client_tensor_index_free(struct tensor_index *index);

#endif
