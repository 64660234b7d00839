/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/number.h"

static int line_read(char *line, struct layout_extent *extent)
{
	uint64_t *const numbers[] = {&extent->offset, &extent->bytes, &extent->chunk_offset};
	char *rest = line;

	for (unsigned i = 0; i < 3; i++) {
		const char *word = strsep(&rest, " ");

		if (!word || parse_u64(word, 0, UINT64_MAX, numbers[i]) < 0)
			return -EINVAL;
	}
	if (!rest || !*rest || strlen(rest) >= sizeof(extent->kind) ||
	    extent->bytes > UINT64_MAX - extent->offset)
		return -EINVAL;
	snprintf(extent->kind, sizeof(extent->kind), "%s", rest);
	return 0;
}

int layout_read(const char *text, struct layout_list *layout)
{
	AUTO_FREE char *copy = strdup(text);
	char *rest = copy, *line;
	int error = copy ? 0 : -ENOMEM;

	*layout = (struct layout_list){0};
	while (!error && (line = strsep(&rest, "\n"))) {
		if (!*line)
			continue;
		struct layout_extent *extents =
		    reallocarray(layout->at, layout->count + 1, sizeof(*extents));

		if (extents)
			layout->at = extents;
		error = extents ? line_read(line, &extents[layout->count]) : -ENOMEM;
		if (!error)
			layout->count++;
	}
	if (error)
		layout_free(layout);
	return error;
}

void layout_free(struct layout_list *layout)
{
	free(layout->at);
	*layout = (struct layout_list){0};
}

uint64_t layout_bytes(const struct layout_list *layout)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < layout->count; i++)
		bytes += layout->at[i].bytes;
	return bytes;
}

/* The extent that covers most of [from, to); NULL: most of the range is a hole. */
static const struct layout_extent *extent_with_most(const struct layout_list *layout, uint64_t from,
						    uint64_t to)
{
	const struct layout_extent *found = NULL;
	uint64_t best = 0, covered = 0;

	for (size_t i = 0; i < layout->count; i++) {
		const struct layout_extent *extent = &layout->at[i];
		uint64_t start = extent->offset > from ? extent->offset : from;
		uint64_t end =
		    extent->offset + extent->bytes < to ? extent->offset + extent->bytes : to;

		if (start >= end)
			continue;
		covered += end - start;
		if (end - start > best) {
			best = end - start;
			found = extent;
		}
	}
	return covered * 2 >= to - from ? found : NULL;
}

const char *layout_draw(const struct layout_list *layout, uint64_t size, unsigned cells,
			enum output_glyphs glyphs, char *text)
{
	/* A hole, a part of a shared chunk, and two shades for neighbouring chunks. */
	static const char *const shades[2][4] = {{" ", ":", "#", "="},
						 {" ", "\u2591", "\u2588", "\u2593"}};
	uint64_t whole = size;
	char *at = text;

	for (size_t i = 0; i < layout->count; i++)
		if (layout->at[i].offset + layout->at[i].bytes > whole)
			whole = layout->at[i].offset + layout->at[i].bytes;
	*text = '\0';
	for (unsigned cell = 0; cell < cells && whole; cell++) {
		uint64_t from = (uint64_t)((double)whole / cells * cell);
		uint64_t to = (uint64_t)((double)whole / cells * (cell + 1));
		const struct layout_extent *extent =
		    extent_with_most(layout, from, to > from ? to : from + 1);
		unsigned shade = !extent ? 0
				 : strcmp(extent->kind, "block") == 0
				     ? 1
				     : 2 + (extent - layout->at) % 2;

		at = stpcpy(at, shades[glyphs == OUTPUT_UNICODE][shade]);
	}
	return text;
}
