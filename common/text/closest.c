/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/text/closest.h"

#include <string.h>

/* Longer words are no names. */
#define LENGTH_MAX 31

static unsigned min_of(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* How many letters must be inserted, removed, replaced, or exchanged with the next letter. */
static unsigned edit_distance(const char *a, unsigned n, const char *b, unsigned m)
{
	unsigned rows[3][LENGTH_MAX + 1];

	for (unsigned j = 0; j <= m; j++)
		rows[0][j] = j;
	for (unsigned i = 1; i <= n; i++) {
		unsigned *row = rows[i % 3];
		const unsigned *previous = rows[(i - 1) % 3], *second_last = rows[(i + 1) % 3];

		row[0] = i;
		for (unsigned j = 1; j <= m; j++) {
			row[j] = min_of(previous[j] + 1, row[j - 1] + 1);
			row[j] = min_of(row[j], previous[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = min_of(row[j], second_last[j - 2] + 1);
		}
	}
	return rows[n % 3][m];
}

void closest_try(struct closest *closest, const char *name)
{
	size_t n = strlen(closest->word), m = strlen(name);

	if (n == 0 || n > LENGTH_MAX || m > LENGTH_MAX)
		return;
	unsigned distance = edit_distance(closest->word, (unsigned)n, name, (unsigned)m);

	/* A third of the letters may be wrong; in a short word, a single letter. */
	if (distance > (n + 2) / 3 || distance >= m ||
	    (closest->name && distance >= closest->distance))
		return;
	closest->name = name;
	closest->distance = distance;
}
