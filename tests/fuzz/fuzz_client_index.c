/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Indexes of sets of tensors. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/safetensors/tensor_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every element lies in the bytes that the tensor claims. */
static void check_tensor(const struct gpumem_set_tensor *tensor, size_t n_files)
{
	unsigned __int128 last = 0;
	bool empty = false;

	for (uint32_t i = 0; i < tensor->rank; i++) {
		empty |= !tensor->shape[i];
		last += (unsigned __int128)(tensor->shape[i] ? tensor->shape[i] - 1 : 0) *
			tensor->strides[i];
	}
	if (!*tensor->dtype || !tensor->unit || tensor->offset % tensor->unit ||
	    strlen(tensor->name) > 1 << 20)
		abort();
	if (empty ? tensor->size != 0
		  : tensor->file >= n_files || (last + 1) * tensor->unit != tensor->size)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tensor_index *index = NULL;
	/* The copy has exactly the input's size, so that the sanitizer detects a read past the end.
	 */
	char *text = malloc(size ? size : 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	if (client_tensor_index_parse(text, size, &index) == 0) {
		for (size_t i = 0; i < index->api.n_files; i++)
			if (strchr(index->api.files[i], '/') || !*index->api.files[i])
				abort();
		for (size_t i = 0; i < index->api.n_tensors; i++)
			check_tensor(&index->api.tensors[i], index->api.n_files);
	}
	client_tensor_index_free(index);
	free(text);
	return 0;
}
