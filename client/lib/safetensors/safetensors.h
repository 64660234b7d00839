/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Reads the header of a safetensors file, which may be hostile. A file has 8 bytes, N
 * (little-endian); N bytes of JSON, which begin with "{" and may end in spaces; and the data, which
 * the tensors cover without holes or overlaps. Offsets in the JSON count from the start of the
 * data, offsets in the structs below from the start of the file. */
#ifndef CLIENT_LIB_SAFETENSORS_SAFETENSORS_H
#define CLIENT_LIB_SAFETENSORS_SAFETENSORS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/gpumem.h"

#define SAFETENSORS_LENGTH_BYTES 8
#define SAFETENSORS_HEADER_MAX	 100000000

/* Size of the largest element: a power of two. */
#define SAFETENSORS_UNIT_MAX 16

struct safetensors {
	struct gpumem_safetensors api; /* what callers of the library see; the first member */
	struct gpumem_tensor *tensors;
	struct gpumem_metadata *metadata;
	uint64_t *shapes; /* the numbers of all shapes */
	json_t *json;	  /* owns the names and metadata */
	char *text;	  /* of the JSON, with the spaces at its end */
	size_t text_bytes;
	uint64_t data_bytes;
};

/* Reads the header of an open file. -EINVAL, with a text that names the tensor and the fault, but
 * no file; or another -errno. */
int client_safetensors_read(int fd, struct safetensors **header);

/* Reads bytes at the offset. -EINVAL if the file ends before; or another -errno. */
int client_safetensors_read_bytes(int fd, void *to, size_t bytes, uint64_t offset);

/* Parses the header of a file with so many bytes of data. The header owns text, which is freed
 * after a failure too. -EINVAL, with a text; -ENOMEM. */
int client_safetensors_parse(char *text, size_t bytes, uint64_t data_bytes,
			     struct safetensors **header);

void client_safetensors_free(struct safetensors *header);

/* Moves all tensors, so that the data begins at data_start, and sets the place of each. */
void client_safetensors_move(struct safetensors *header, uint64_t data_start, size_t alignment);

/* Changes the number of spaces at the end of the text, and moves the tensors, so that as many
 * tensors as possible begin at a multiple of their unit; with as many as possible at a multiple of
 * alignment, a power of two; with as few spaces as possible. -EINVAL: the format does not allow so
 * large a header; -ENOMEM. */
int client_safetensors_pad(struct safetensors *header, size_t alignment);

#endif
