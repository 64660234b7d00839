/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/extents/extents_copy.h"

#include <string.h>

static int extent_fill(struct copier *copier, const struct extent *target,
		       const struct extents *from)
{
	struct extents_walk walk = extents_walk(from, target->offset, extent_end(target));
	struct segment segment;
	int rc = 0;

	while (rc == 0 && extents_next(&walk, &segment)) {
		uint64_t target_offset = segment.offset - target->offset;

		if (segment.span)
			rc = copy_across(copier, &target->span, target_offset, segment.span,
					 segment.span_offset, segment.bytes);
		else
			rc = copy_zero(copier, &target->span, target_offset, segment.bytes);
	}
	return rc;
}

int extents_fill(struct copier *copier, const struct extents *target, const struct extents *from)
{
	int rc = 0;

	EXTENTS_FOREACH (extent, target) {
		rc = extent_fill(copier, extent, from);
		if (rc < 0)
			break;
	}
	return rc;
}

int extents_in(struct copier *copier, const struct extents *to, uint64_t offset, const void *from,
	       uint64_t bytes, enum copy_path path)
{
	struct extents_walk walk = extents_walk(to, offset, offset + bytes);
	struct segment segment;
	int rc = 0;

	while (rc == 0 && extents_next(&walk, &segment)) {
		if (segment.span)
			rc = copy_in(copier, segment.span, segment.span_offset,
				     (const char *)from + (segment.offset - offset), segment.bytes,
				     path);
	}
	return rc;
}

int extents_out(struct copier *copier, void *to, const struct extents *from, uint64_t offset,
		uint64_t bytes, enum copy_path path)
{
	struct extents_walk walk = extents_walk(from, offset, offset + bytes);
	struct segment segment;
	int rc = 0;

	while (rc == 0 && extents_next(&walk, &segment)) {
		char *at = (char *)to + (segment.offset - offset);

		if (segment.span)
			rc = copy_out(copier, at, segment.span, segment.span_offset, segment.bytes,
				      path);
		else
			memset(at, 0, segment.bytes);
	}
	return rc;
}

int extents_zero(struct copier *copier, const struct extents *extents, uint64_t from, uint64_t to)
{
	struct extents_walk walk = extents_walk(extents, from, to);
	struct segment segment;
	int rc = 0;

	while (rc == 0 && extents_next(&walk, &segment)) {
		if (segment.span)
			rc = copy_zero(copier, segment.span, segment.span_offset, segment.bytes);
	}
	return rc;
}
