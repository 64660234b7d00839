/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/output/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "client/cli/output/output.h"

#define CELLS_MAX 24
#define CELLS_MIN 6
#define GAP	  2
#define PERCENT	  4 /* "100%" */

unsigned progress_columns(void)
{
	unsigned width = output_terminal_width(stderr);

	return width ? width : 80;
}

void progress_draw(FILE *out, unsigned columns, uint64_t amount, uint64_t total,
		   const char *const *parts, unsigned n_parts)
{
	/* Some terminals wrap behind the last column. */
	unsigned room = columns ? columns - 1 : 0, used = PERCENT, n = 0;
	char bar[OUTPUT_BAR_BYTES(CELLS_MAX)];

	fprintf(out, "\r\033[K");
	if (used > room)
		return;
	while (n < n_parts && used + GAP + output_width(parts[n]) <= room)
		used += GAP + output_width(parts[n++]);
	fprintf(out, "%3.0f%%", total ? 100.0 * (double)amount / (double)total : 0.0);
	unsigned cells = room > used ? room - used - 1 : 0;

	if (cells >= CELLS_MIN)
		fprintf(out, " %s",
			output_bar(amount, total, cells < CELLS_MAX ? cells : CELLS_MAX,
				   output_glyphs(), bar));
	for (unsigned i = 0; i < n; i++)
		output_text(out, "%*s%s", GAP, "", parts[i]);
}
