/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/core/stats.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/preload/core/file_stats.h"
#include "client/preload/core/line.h"
#include "client/preload/core/own.h"

static const char *const served_names[SERVED_END] = {
    [SERVED_MAP] = "mapped",
    [SERVED_READ] = "read",
    [SERVED_WRITE] = "written",
    [SERVED_COPY] = "copied",
};

static const char *const left_names[LEFT_REASONS] = {
    [LEFT_WARMING] = "not used enough yet",
    [LEFT_RIGHTS] = "no right to the memory itself",
    [LEFT_CACHED] = "page cache in use",
    [LEFT_SPARSE] = "sparse or small",
    [LEFT_GROWING] = "beyond the window",
    [LEFT_APPEND] = "O_APPEND",
    [LEFT_SLOW] = "slower through the BAR",
    [LEFT_KIND] = "kind of mapping",
    [LEFT_END_OF_FILE] = "mapping beyond the end",
    [LEFT_WINDOW] = "small part of a large file",
    [LEFT_SMALL] = "small private mapping",
    [LEFT_TIMES] = "for the file's times",
    [LEFT_FAILED] = "no direct mapping",
    [LEFT_CHANGED] = "private pages",
    [LEFT_BUSY] = "busy",
};

static atomic_uint_fast64_t served_calls[SERVED_END], served_bytes[SERVED_END],
    left_calls[LEFT_REASONS];
static atomic_uint_fast64_t n_windows, window_ns;
static int stats_fd = -1; /* the library's copy: programs close stderr before they end */

void stats_start(void)
{
	const char *setting = secure_getenv("GPUMEM_PRELOAD_STATS");

	if (setting && strcmp(setting, "1") == 0)
		stats_fd = own_copy(STDERR_FILENO);
	if (stats_fd >= 0)
		file_stats_start();
}

void stats_serve(enum stats_served kind, uint64_t n)
{
	atomic_fetch_add_explicit(&served_calls[kind], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&served_bytes[kind], n, memory_order_relaxed);
}

void stats_leave(enum stats_left reason)
{
	atomic_fetch_add_explicit(&left_calls[reason], 1, memory_order_relaxed);
}

void stats_window(int64_t ns)
{
	atomic_fetch_add_explicit(&n_windows, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&window_ns, (uint64_t)ns, memory_order_relaxed);
}

void stats_forked(void)
{
	atomic_store(&n_windows, 0);
	atomic_store(&window_ns, 0);
	for (unsigned i = 0; i < SERVED_END; i++) {
		atomic_store(&served_calls[i], 0);
		atomic_store(&served_bytes[i], 0);
	}
	for (unsigned i = 0; i < LEFT_REASONS; i++)
		atomic_store(&left_calls[i], 0);
	file_stats_forked();
}

static uint64_t line_add_served(struct line *line)
{
	uint64_t any = 0;

	for (unsigned i = 0; i < SERVED_END; i++) {
		uint64_t n = atomic_load(&served_calls[i]);
		any += n;
		line_add(line, "%s %s %" PRIu64 " (%" PRIu64 " bytes)",
			 i ? "," : " directly:", served_names[i], n,
			 (uint64_t)atomic_load(&served_bytes[i]));
	}
	return any;
}

static uint64_t line_add_left(struct line *line)
{
	uint64_t any = 0;

	for (unsigned i = 0; i < LEFT_REASONS; i++) {
		uint64_t n = atomic_load(&left_calls[i]);
		if (n)
			line_add(line, "%s %s %" PRIu64,
				 any ? "," : "; by the kernel:", left_names[i], n);
		any += n;
	}
	return any;
}

void stats_print(void)
{
	struct line line;

	if (stats_fd < 0)
		return;
	line_begin(&line);
	uint64_t any = line_add_served(&line);
	any += line_add_left(&line);
	if (atomic_load(&n_windows))
		line_add(&line, "; mapped for it %" PRIu64 " times in %.3f s",
			 (uint64_t)atomic_load(&n_windows), (double)atomic_load(&window_ns) / 1e9);
	if (any)
		line_write(&line, stats_fd);
	file_stats_print(stats_fd);
}
