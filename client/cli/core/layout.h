/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The extents of a file, from its attribute, and a drawing of the extents. */
#ifndef CLIENT_CLI_CORE_LAYOUT_H
#define CLIENT_CLI_CORE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "client/cli/output/output.h"

struct layout_extent {
	uint64_t offset, bytes; /* in the file */
	uint64_t chunk_offset;
	char kind[16]; /* "chunk", "block", "object" */
};

struct layout_list {
	struct layout_extent *at;
	size_t count;
};

/* Parses lines "offset bytes chunk-offset kind": 0, -EINVAL or -ENOMEM. */
int layout_read(const char *text, struct layout_list *layout);
void layout_free(struct layout_list *layout);
uint64_t layout_bytes(const struct layout_list *layout);
/* Draws a line of cells for the file's size, or for its memory if that is larger. Text has room for
 * OUTPUT_BAR_BYTES(cells). */
const char *layout_draw(const struct layout_list *layout, uint64_t size, unsigned cells,
			enum output_glyphs glyphs, char *text);

#endif
