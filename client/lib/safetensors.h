/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Parses the header of a safetensors file, which may be hostile. A file has 8 bytes, N
 * (little-endian); N bytes of JSON, which begin with "{" and may end in spaces; and the data, which
 * the tensors cover without holes or overlaps. Offsets count from the start of the data. */
#ifndef CLIENT_LIB_SAFETENSORS_H
#define CLIENT_LIB_SAFETENSORS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_LENGTH_BYTES 8
#define SAFETENSORS_HEADER_MAX	 100000000

/* Size of the largest element: a power of two. */
#define SAFETENSORS_UNIT_MAX 16

struct safetensors_tensor {
	const char *name;
	const char *dtype;   /* as in the file: "BF16" */
	uint32_t unit;	     /* an element lies at a multiple of so many bytes */
	uint32_t number;     /* in the header's order */
	uint64_t begin, end; /* in the data */
};

struct safetensors {
	json_t *json;			    /* owns the names */
	struct safetensors_tensor *tensors; /* in the header's order */
	size_t n_tensors;
};

/* Parses the header of a file with so many bytes of data. -EINVAL, with a text that names the
 * tensor and the fault; -ENOMEM. */
int client_safetensors_parse(const char *text, size_t bytes, uint64_t data_bytes,
			     struct safetensors *header);

void client_safetensors_free(struct safetensors *header);

/* The number of spaces to put behind a header of length bytes. With this padding as many tensors as
 * possible begin at a multiple of their unit; among such paddings, as many as possible begin at a
 * multiple of alignment, a power of two; among those, the shortest. Or -ENOMEM. */
int64_t client_safetensors_padding(const struct safetensors *header, size_t length,
				   size_t alignment);

#endif
