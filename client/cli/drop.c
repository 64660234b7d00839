/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem drop: writes changes back and drops files from the kernel's page cache, or ends the leases
 * of files. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/core/walk.h"
#include "client/cli/output/output.h"
#include "client/core/beneath.h"
#include "client/core/error.h"
#include "client/lib/drop.h"
#include "common/cleanup.h"

#define LEASES (CLI_LONG + 2)
#ifndef SYS_cachestat
#define SYS_cachestat 451 /* Linux 6.5, the same on every architecture */
#endif

struct totals {
	uint64_t bytes_before, bytes_after; /* in the cache; 0 if the kernel has no cachestat(2) */
	uint64_t files, leases;
};

static uint64_t cached_bytes(int fd)
{
	struct {
		uint64_t offset, bytes;
	} range = {0, 0};
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} found;

	if (syscall(SYS_cachestat, fd, &range, &found, 0) < 0)
		return 0;
	return found.cached * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int cache_drop(const char *path, struct totals *totals)
{
	AUTO_CLOSE int fd = beneath_open_real(path, O_RDONLY);

	if (fd < 0)
		return fd;
	totals->bytes_before += cached_bytes(fd);
	if (fsync(fd) < 0)
		return -errno;
	int error = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);

	totals->bytes_after += cached_bytes(fd);
	totals->files++;
	return -error;
}

static int file_drop_cache(const struct walk_entry *entry, void *totals)
{
	int error = entry->is_directory ? 0 : cache_drop(entry->place.path, totals);

	return error ? cli_fail(entry->place.path, -error) : CLI_OK;
}

static int file_drop_leases(const struct walk_entry *entry, void *context)
{
	struct totals *totals = context;
	uint64_t leases = 0;

	if (entry->is_directory)
		return CLI_OK;
	AUTO_CLOSE int fd = beneath_open_real(entry->place.path, O_RDONLY);
	int error = fd < 0 ? fd : client_drop_leases(fd, &leases);

	totals->files++;
	totals->leases += leases;
	if (fd < 0)
		return cli_fail(entry->place.path, -error);
	if (!error)
		return CLI_OK;
	cli_error("%s: %s", entry->place.path, client_error_text());
	return (int)cli_status_of(-error);
}

enum target { TARGET_CACHE, TARGET_LEASES };

static int options_parse(struct cli_args *args, enum target *target, int *json)
{
	int code;

	*json = 0;
	*target = TARGET_CACHE;
	while ((code = cli_option(args)) > 0) {
		*json |= code == CLI_JSON_CODE;
		if (code == LEASES)
			*target = TARGET_LEASES;
	}
	return code;
}

static void leases_print(const char *word, uint64_t leases)
{
	output_line(stdout, "%s: ended %lu lease%s", word, (unsigned long)leases,
		    output_plural(leases));
}

static json_t *drop_json(const struct place *place, enum target target, const struct totals *totals,
			 uint64_t bytes_dropped)
{
	return target == TARGET_LEASES
		   ? json_pack("{s:o, s:I, s:I}", "path", output_json_text(place->path), "files",
			       (json_int_t)totals->files, "leases", (json_int_t)totals->leases)
		   : json_pack("{s:o, s:I, s:I, s:I}", "path", output_json_text(place->path),
			       "files", (json_int_t)totals->files, "cached_bytes",
			       (json_int_t)totals->bytes_before, "dropped_bytes",
			       (json_int_t)bytes_dropped);
}

/* Adds the result to list, or prints it if that is NULL. */
static int drop_path(const char *word, enum target target, json_t *list)
{
	char cached[OUTPUT_TEXT_MAX], dropped[OUTPUT_TEXT_MAX];
	AUTO_PLACE struct place place = {0};
	struct totals totals = {0};
	int status = place_find(word, &place);

	if (status)
		return status;
	status = walk_tree(&place, target == TARGET_LEASES ? file_drop_leases : file_drop_cache,
			   &totals);
	uint64_t bytes_dropped =
	    totals.bytes_before > totals.bytes_after ? totals.bytes_before - totals.bytes_after : 0;

	if (list)
		json_array_append_new(list, drop_json(&place, target, &totals, bytes_dropped));
	else if (target == TARGET_LEASES && totals.files)
		leases_print(word, totals.leases);
	else if (totals.files)
		output_line(stdout, "%s: dropped %s of %s in the page cache", word,
			    output_size(bytes_dropped, dropped),
			    output_size(totals.bytes_before, cached));
	return status;
}

static int drop_run(struct cli_args *args)
{
	enum target target;
	int json, status = CLI_OK, written = CLI_OK;

	if (options_parse(args, &target, &json) < 0)
		return CLI_USAGE;
	json_t *list = json ? json_array() : NULL;

	for (int i = 0; i < args->argc; i++) {
		int path_status = drop_path(args->argv[i], target, list);

		status = status ? status : path_status;
	}
	/* Of a single path, an object. */
	if (list && args->argc > 1)
		written = output_json(json_pack("{s:O}", "paths", list));
	else if (json_array_size(list))
		written = output_json(json_incref(json_array_get(list, 0)));
	json_decref(list);
	return status ? status : written;
}

static const struct cli_option drop_options[] = {
    {LEASES, "leases", NULL, "end the leases that processes have of your files instead"},
    CLI_JSON,
    {0}};

const struct command command_drop = {
    .name = "drop",
    .words = "PATH...",
    .summary = "Drop files from the page cache",
    .help = "Of a directory, all files below. Changes made through mappings are written to the\n"
	    "GPU first. Pages that a process has mapped stay. With --leases, files that are busy\n"
	    "because processes share them can be changed again; the mappings of these processes\n"
	    "stay.",
    .options = drop_options,
    .min_words = 1,
    .max_words = -1,
    .run = drop_run,
};
