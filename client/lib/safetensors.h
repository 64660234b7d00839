/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The header of a safetensors file, read as hostile input. A file is: 8 bytes, N (little-endian); N
 * bytes of JSON, which begin with "{" and may end in spaces; the data, which the tensors cover
 * without holes or overlaps. Offsets count from the data's begin. */
#ifndef CLIENT_LIB_SAFETENSORS_H
#define CLIENT_LIB_SAFETENSORS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_LENGTH_BYTES 8
#define SAFETENSORS_HEADER_MAX	 100000000

/* Of elements: bytes, and a power of two. */
#define SAFETENSORS_UNIT_MAX 16

struct safetensors_tensor {
	const char *name;
	const char *dtype;   /* as the file has it: "BF16" */
	uint32_t unit;	     /* bytes: an element lies at a multiple of it */
	uint32_t number;     /* in the header's order */
	uint64_t begin, end; /* in the data */
};

struct safetensors {
	json_t *json;			    /* has the names */
	struct safetensors_tensor *tensors; /* in the header's order */
	size_t n_tensors;
};

/* The header of a file with so many bytes of data. 0; -EINVAL with a text that names the tensor and
 * what is wrong; -ENOMEM. */
int client_safetensors_parse(const char *text, size_t bytes, uint64_t data_bytes,
			     struct safetensors *header);

void client_safetensors_free(struct safetensors *header);

/* Spaces to put behind a header of length bytes, so that as many tensors as possible begin at a
 * multiple of their unit and, of such places for the data, for most to begin at a multiple of
 * alignment, a power of two; the fewest spaces that do. Or -ENOMEM. */
int64_t client_safetensors_padding(const struct safetensors *header, size_t length,
				   size_t alignment);

#endif
