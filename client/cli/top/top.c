/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem top: shows the traffic of a mount, on the terminal, as lines or as JSON. */
#include "client/cli/top/top.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/output/output.h"
#include "common/number.h"

#define MS_MIN	   100
#define MS_MAX	   3600000
#define MS_DEFAULT 1000
#define LINES_MAX  100

static json_t *bytes_json(const struct top_bytes *rate)
{
	return json_pack("{s:f, s:f, s:f}", "read", rate->read, "write", rate->write, "copy",
			 rate->copy);
}

static json_t *places_json(const struct top_gpu *gpu)
{
	json_t *all = json_object();

	for (unsigned i = 0; i < gpu->n_places; i++) {
		const struct top_place *place = &gpu->places[i];

		json_object_set_new(all, place->name,
				    json_pack("{s:I, s:I, s:f}", "size_bytes",
					      (json_int_t)place->size, "file_bytes",
					      (json_int_t)place->files, "moved_bytes_per_second",
					      place->rate));
	}
	return all;
}

static json_t *gpus_json(const struct top *top)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < top->n_gpus; i++) {
		const struct top_gpu *gpu = &top->gpus[i];

		json_array_append_new(
		    all, json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o}", "name",
				   gpu->name, "total_bytes", (json_int_t)gpu->total, "used_bytes",
				   (json_int_t)gpu->used, "held_bytes", (json_int_t)gpu->held,
				   "bar_mapped_bytes", (json_int_t)gpu->mapped, "health",
				   gpu->health, "bytes_per_second",
				   gpu->counted ? bytes_json(&gpu->rate) : json_null(),
				   "requests_per_second",
				   gpu->counted ? json_real(gpu->request_rate) : json_null(),
				   "places", places_json(gpu)));
	}
	return all;
}

static json_t *files_json(const struct top *top)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < top->n_files; i++) {
		const struct top_file *file = &top->files[i];
		json_t *row = json_pack("{s:s+}", "path", "/", file->path);

		if (top->log >= 0)
			json_object_set_new(row, "bytes_per_second", bytes_json(&file->rate));
		else
			json_object_set_new(row, "recent_bytes",
					    json_integer((json_int_t)file->recent));
		json_array_append_new(all, row);
	}
	return all;
}

static json_t *sharers_json(const struct top *top)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < top->n_sharers; i++) {
		const struct top_sharer *row = &top->sharers[i];
		json_array_append_new(all, json_pack("{s:I, s:I, s:I, s:o, s:o}", "pid",
						     (json_int_t)row->sharer.pid, "uid",
						     (json_int_t)row->sharer.uid, "bytes",
						     (json_int_t)row->sharer.bytes, "path",
						     output_json_text(row->sharer.path), "command",
						     output_json_text(row->command)));
	}
	return all;
}

json_t *top_json(const struct top *top)
{
	return json_pack("{s:o, s:o, s:f, s:f, s:o, s:o, s:o}", "mount",
			 output_json_text(top->mountpoint), "bytes_per_second",
			 bytes_json(&top->rate), "requests_per_second", top->request_rate,
			 "errors_per_second", top->error_rate, "gpus", gpus_json(top), "files",
			 files_json(top), "sharers", sharers_json(top));
}

static void line_put(void *context, const char *text, bool strong)
{
	(void)context, (void)strong;
	puts(text);
}

static void interval_wait(uint64_t ms)
{
	struct timespec remaining = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	while (nanosleep(&remaining, &remaining) < 0 && errno == EINTR)
		;
}

/* Takes a first sample, which has no rates, and then prints one sample after each interval. */
static int samples_print(struct top *top, uint64_t ms, uint64_t count, bool json)
{
	int error = top_sample(top, cli_seconds()), status = CLI_OK;

	for (uint64_t n = 0; !error && status == CLI_OK && (!count || n < count); n++) {
		interval_wait(ms);
		error = top_sample(top, cli_seconds());
		if (error)
			break;
		if (json)
			status = output_json_line(top_json(top));
		else
			top_write(top, LINES_MAX, 200, line_put, NULL);
		if (fflush(stdout))
			status = CLI_FAILED;
	}
	return error ? cli_fail(top->mountpoint, -error) : status;
}

static int sample_show(const char *mountpoint, uint64_t ms, uint64_t count, bool json)
{
	struct top *top = malloc(sizeof(*top));

	if (!top)
		return cli_fail(mountpoint, ENOMEM);
	top_open(top, mountpoint);
	int status = json || count || !isatty(STDOUT_FILENO)
			 ? samples_print(top, ms, count, json)
			 : top_screen(top, (double)ms / 1000, count);

	top_close(top);
	free(top);
	return status;
}

/* Finds the mount: the only one, or the argument's. */
static int mount_top(const struct cli_args *args, uint64_t ms, uint64_t count, bool json)
{
	AUTO_PLACE struct place place = {0};
	struct mounts mounts;
	int status;

	if (args->argc) {
		status = place_find(args->argv[0], &place);
		return status == CLI_OK ? sample_show(place.mount->mountpoint, ms, count, json)
					: status;
	}
	int error = mounts_find(&mounts);

	if (error)
		return cli_fail("/proc/self/mountinfo", -error);
	const struct mount_at *mount = mounts.count ? mounts_whole(&mounts, &mounts.at[0]) : NULL;

	if (mount) {
		status = sample_show(mount->mountpoint, ms, count, json);
	} else {
		cli_error("no gpumemfs is mounted here");
		status = CLI_NOT_MOUNTED;
	}
	mounts_free(&mounts);
	return status;
}

static int top_run(struct cli_args *args)
{
	uint64_t ms = MS_DEFAULT, count = 0;
	bool json = false;
	int code;

	while ((code = cli_option(args)) > 0) {
		json |= code == CLI_JSON_CODE;
		if (code == 'd' && parse_u64(args->value, MS_MIN, MS_MAX, &ms) < 0)
			return cli_usage(args->command, "--delay=%s: %d to %d", args->value, MS_MIN,
					 MS_MAX);
		if (code == 'n' && parse_u64(args->value, 1, UINT32_MAX, &count) < 0)
			return cli_usage(args->command, "--samples=%s: a number", args->value);
	}
	return code < 0 ? CLI_USAGE : mount_top(args, ms, count, json);
}

static const struct cli_option top_options[] = {
    {'d', "delay", "MS", "milliseconds from one sample to the next (default: 1000)"},
    {'n', "samples", "N", "print N samples as text and end"},
    CLI_JSON,
    {0},
};

const struct command command_top = {
    .name = "top",
    .words = "[MOUNT]",
    .summary = "Watch a mount at work: rates of each GPU, busy files, sharers",
    .help = "Rates of files are for root, who may read the access log. Press q to quit.\n"
	    "Without a terminal, or with --json, a sample is printed after each delay.",
    .options = top_options,
    .max_words = 1,
    .run = top_run,
};
