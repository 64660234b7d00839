/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: the line of progress on the terminal. */
#include <inttypes.h>
#include <unistd.h>

#include "client/cli/core/output.h"
#include "client/cli/cp/cp.h"

#define CELLS 24
/* A shorter copy shows no progress. */
#define SILENT_SECONDS 0.5

static bool progress_wanted(const struct cp *cp)
{
	return !cp->options.quiet && !cp->options.json && isatty(STDERR_FILENO);
}

static double progress_rate(const struct cp *cp, double seconds)
{
	uint64_t done = atomic_load(&cp->bytes_done) - atomic_load(&cp->bytes_skipped);

	return seconds > 0 ? (double)done / seconds : 0;
}

/* The bytes to move in all: verified bytes count twice. */
static uint64_t progress_bytes(const struct cp *cp, uint64_t copied, uint64_t verified)
{
	return cp->options.verify ? copied + verified : copied;
}

void cp_progress(const struct cp *cp)
{
	char done_text[OUTPUT_TEXT_MAX], all_text[OUTPUT_TEXT_MAX], rate_text[OUTPUT_TEXT_MAX];
	char left_text[OUTPUT_TEXT_MAX], bar[OUTPUT_BAR_BYTES(CELLS)];
	double seconds = cli_seconds() - cp->started;

	if (!progress_wanted(cp) || seconds < SILENT_SECONDS)
		return;
	uint64_t copied = atomic_load(&cp->bytes_done), all = atomic_load(&cp->bytes_all);
	uint64_t done = progress_bytes(cp, copied, atomic_load(&cp->bytes_verified));
	uint64_t total = progress_bytes(cp, all, all),
		 fresh = done - atomic_load(&cp->bytes_skipped);
	double left = fresh && total > done ? (double)(total - done) * seconds / (double)fresh : -1;

	atomic_store(&cli_line_open, true);
	fprintf(stderr, "\r\033[K%3.0f%% %s %s of %s  %s  %s left",
		total ? 100.0 * (double)done / (double)total : 0.0,
		output_bar(done, total, CELLS, output_glyphs(), bar),
		output_size(copied, done_text), output_size(all, all_text),
		output_rate(progress_rate(cp, seconds), rate_text), output_time(left, left_text));
}

void cp_progress_end(const struct cp *cp)
{
	char done[OUTPUT_TEXT_MAX], rate[OUTPUT_TEXT_MAX];
	double seconds = cli_seconds() - cp->started;

	if (!progress_wanted(cp) || seconds < SILENT_SECONDS)
		return;
	atomic_store(&cli_line_open, false);
	fprintf(stderr, "\r\033[K%" PRIu64 " of %" PRIu64 " files, %s in %.1f s, %s\n",
		atomic_load(&cp->files_done), atomic_load(&cp->files_all),
		output_size(atomic_load(&cp->bytes_done), done), seconds,
		output_rate(progress_rate(cp, seconds), rate));
}
