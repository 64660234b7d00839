/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/extents/extents_copy.h"

static int extent_fill(struct copier *copier, const struct extent *fresh,
		       const struct extents *from)
{
	struct extents_walk walk = extents_walk(from, fresh->offset, extent_end(fresh));
	struct segment segment;
	int rc = 0;

	while (rc == 0 && extents_next(&walk, &segment)) {
		uint64_t into = segment.offset - fresh->offset;

		if (segment.span)
			rc = copy_across(copier, &fresh->span, into, segment.span, segment.into,
					 segment.bytes);
		else
			rc = copy_zero(copier, &fresh->span, into, segment.bytes);
	}
	return rc;
}

int extents_fill(struct copier *copier, const struct extents *fresh, const struct extents *from)
{
	int rc = 0;

	EXTENTS_FOREACH (extent, fresh) {
		rc = extent_fill(copier, extent, from);
		if (rc < 0)
			break;
	}
	return rc;
}
