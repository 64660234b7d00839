/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: the line of progress on the terminal. */
#include <inttypes.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "client/cli/output/output.h"
#include "client/cli/output/progress.h"

/* A shorter copy shows no progress. */
#define SILENT_SECONDS 0.5

static bool progress_wanted(const struct cp *cp)
{
	return !cp->options.quiet && !cp->options.json && isatty(STDERR_FILENO);
}

static double progress_rate(const struct cp *cp, double seconds)
{
	uint64_t bytes = atomic_load(&cp->bytes_done) - atomic_load(&cp->bytes_skipped);

	return seconds > 0 ? (double)bytes / seconds : 0;
}

/* Percentage and amount count each byte twice if it is read back. */
static uint64_t progress_bytes(const struct cp *cp, uint64_t copied, uint64_t verified)
{
	return cp->options.verify ? copied + verified : copied;
}

void cp_progress(const struct cp *cp)
{
	char bytes_text[OUTPUT_TEXT_MAX], all_text[OUTPUT_TEXT_MAX], rate[OUTPUT_TEXT_MAX];
	char time_text[OUTPUT_TEXT_MAX], amount[2 * OUTPUT_TEXT_MAX + 8],
	    time_left[OUTPUT_TEXT_MAX + 8];
	double seconds = cli_seconds() - cp->started;

	if (!progress_wanted(cp) || seconds < SILENT_SECONDS)
		return;
	uint64_t all = atomic_load(&cp->bytes_all), total = progress_bytes(cp, all, all);
	uint64_t bytes =
	    progress_bytes(cp, atomic_load(&cp->bytes_done), atomic_load(&cp->bytes_verified));
	uint64_t new_bytes = bytes - atomic_load(&cp->bytes_skipped);
	double missing =
	    new_bytes && total > bytes ? (double)(total - bytes) * seconds / (double)new_bytes : -1;

	snprintf(amount, sizeof(amount), "%s of %s", output_size(bytes, bytes_text),
		 output_size(total, all_text));
	snprintf(time_left, sizeof(time_left), "%s left", output_time(missing, time_text));
	atomic_store(&cli_line_open, true);
	progress_draw(
	    stderr, progress_columns(), bytes, total,
	    (const char *const[]){amount, output_rate(progress_rate(cp, seconds), rate), time_left},
	    3);
}

void cp_progress_end(const struct cp *cp)
{
	char size[OUTPUT_TEXT_MAX], rate[OUTPUT_TEXT_MAX];
	double seconds = cli_seconds() - cp->started;
	uint64_t all = atomic_load(&cp->files_all);

	if (!progress_wanted(cp) || seconds < SILENT_SECONDS)
		return;
	atomic_store(&cli_line_open, false);
	fprintf(stderr, "\r\033[K%" PRIu64 " of %" PRIu64 " file%s, %s in %.1f s, %s\n",
		atomic_load(&cp->files_done), all, output_plural(all),
		output_size(atomic_load(&cp->bytes_done), size), seconds,
		output_rate(progress_rate(cp, seconds), rate));
}
