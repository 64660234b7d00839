/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem fetch and gpumem evict: move files between a GPU and slower places, or free memory of a
 * GPU. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/core/params.h"
#include "client/cli/core/residence.h"
#include "client/cli/core/walk.h"
#include "client/cli/output/output.h"
#include "client/cli/output/progress.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"

#define FREE	(CLI_LONG + 2)
#define DISK	(CLI_LONG + 3)
#define DRAW_US 100000

static struct {
	const char *value; /* of the attribute resident */
	bool drawn;
	uint64_t files;		/* that are where they were to go */
	uint64_t files_unmoved; /* of them: were there already */
	uint64_t bytes;		/* that were moved */
	int status;
} place_totals;

/* A file being moved, by the thread that waits for setxattr(2). */
struct move {
	const char *path; /* through a descriptor: another user may replace the name by a link */
	int error;
	atomic_bool is_done;
};

/* The bytes of a file that are where the move takes them, and all. */
static void resident_read(const char *path, uint64_t *bytes_arrived, uint64_t *bytes)
{
	struct residence residence;

	residence_read(path, &residence);
	*bytes = residence_bytes(&residence);
	*bytes_arrived = strcmp(place_totals.value, "gpu") == 0 ? residence.places[0].bytes
			 : strcmp(place_totals.value, "disk") == 0
			     ? residence_bytes_in(&residence, "disk")
			     : *bytes - residence.places[0].bytes;
}

static void *move_main(void *pointer)
{
	struct move *move = pointer;

	if (setxattr(move->path, "user.gpumem.resident", place_totals.value,
		     strlen(place_totals.value), 0) < 0)
		move->error = errno;
	atomic_store(&move->is_done, true);
	return NULL;
}

static void move_draw(const struct move *move, const char *path)
{
	char arrived_text[OUTPUT_TEXT_MAX], all_text[OUTPUT_TEXT_MAX],
	    amount[2 * OUTPUT_TEXT_MAX + 8];
	uint64_t bytes_arrived, bytes;

	resident_read(move->path, &bytes_arrived, &bytes);
	atomic_store(&cli_line_open, true);
	place_totals.drawn = true;
	snprintf(amount, sizeof(amount), "%s of %s", output_size(bytes_arrived, arrived_text),
		 output_size(bytes, all_text));
	progress_draw(stderr, progress_columns(), bytes_arrived, bytes,
		      (const char *const[]){amount, path}, 2);
}

static int file_move(const char *path)
{
	AUTO_CLOSE int fd = beneath_open_real(path, O_PATH);
	char fd_path[BENEATH_THROUGH_MAX];
	struct move move = {.path = beneath_through(fd, fd_path)};
	uint64_t bytes_before, bytes_after, bytes;
	pthread_t thread;

	if (fd < 0)
		return -fd;
	resident_read(move.path, &bytes_before, &bytes);
	if (!isatty(STDERR_FILENO) || pthread_create(&thread, NULL, move_main, &move)) {
		move_main(&move);
	} else {
		for (unsigned tick = 1; !atomic_load(&move.is_done); tick++) {
			usleep(DRAW_US / 100);
			if (tick % 100 == 0)
				move_draw(&move, path);
		}
		pthread_join(thread, NULL);
	}
	resident_read(move.path, &bytes_after, &bytes);
	place_totals.bytes += bytes_after > bytes_before ? bytes_after - bytes_before : 0;
	place_totals.files += !move.error;
	place_totals.files_unmoved += !move.error && bytes_after <= bytes_before;
	return move.error;
}

static int file_move_fail(const char *path, int error)
{
	if (error == EBUSY)
		cli_error("%s: processes have the file mapped (gpumem sharers)", path);
	else if (error == EOPNOTSUPP)
		cli_error("%s: the mount has no such place for files that leave a GPU "
			  "(gpumemfs -o spill=host:SIZE,disk:SIZE), or the file is below host/",
			  path);
	else if (error == ENOSPC && strcmp(place_totals.value, "gpu") == 0)
		cli_error("%s: its GPU is full, and no other file can leave: they are mapped by "
			  "processes, or spill= of the mount is full",
			  path);
	else if (error == ENOSPC)
		cli_error("%s: spill= of the mount has no room for the rest of the file", path);
	else if (error == EDQUOT)
		cli_error("%s: the files of its owner have all of that place that one user "
			  "may have (gpumemfs -o user_spill=)",
			  path);
	else
		return cli_fail(path, error);
	return (int)cli_status_of(error);
}

static int entry_move(const struct walk_entry *entry, void *unused)
{
	int error = entry->is_directory ? 0 : file_move(entry->place.path);

	(void)unused;
	return error ? file_move_fail(entry->place.path, error) : CLI_OK;
}

static int word_move(const char *word)
{
	AUTO_PLACE struct place place = {0};
	int status = place_find(word, &place);

	if (status)
		return status;
	return walk_tree(&place, entry_move, NULL);
}

static int words_move(struct cli_args *args, const char *value, const char *did, int json)
{
	char text[OUTPUT_TEXT_MAX];

	place_totals.value = value;
	for (int i = 0; i < args->argc; i++) {
		int status = word_move(args->argv[i]);

		place_totals.status = status ? status : place_totals.status;
	}
	if (place_totals.drawn)
		fputs("\r\033[K", stderr);
	atomic_store(&cli_line_open, false);
	if (json)
		return output_json(json_pack("{s:I, s:I, s:I}", "files",
					     (json_int_t)place_totals.files, "bytes",
					     (json_int_t)place_totals.bytes, "there",
					     (json_int_t)place_totals.files_unmoved))
			   ?: place_totals.status;
	uint64_t moved = place_totals.files - place_totals.files_unmoved;

	printf("%s %" PRIu64 " file%s, %s moved", did, moved, output_plural(moved),
	       output_size(place_totals.bytes, text));
	if (place_totals.files_unmoved)
		printf("; %" PRIu64 " %s there already", place_totals.files_unmoved,
		       place_totals.files_unmoved == 1 ? "was" : "were");
	putchar('\n');
	return place_totals.status;
}

static int fetch_run(struct cli_args *args)
{
	int json;

	if (cli_only_json(args, &json) < 0)
		return CLI_USAGE;
	return words_move(args, "gpu", "fetched", json);
}

/* The bytes of a GPU's files that lie elsewhere. */
static uint64_t volume_bytes_away(const json_t *volume)
{
	const json_t *places = json_object_get(volume, "places");

	return facts_number(json_object_get(places, "host"), "file_bytes") +
	       facts_number(json_object_get(places, "disk"), "file_bytes");
}

static uint64_t bytes_away(const json_t *stats, const char *name)
{
	const json_t *volume;
	size_t i;

	json_array_foreach (json_object_get(stats, "volumes"), i, volume)
		if (strcmp(json_string_value(json_object_get(volume, "name")) ?: "", name) == 0)
			return volume_bytes_away(volume);
	return 0;
}

/* Adds a row for each GPU that was meant: inside is its name, or empty for all. */
static void rows_add(json_t *rows, const char *mountpoint, const char *inside,
		     const json_t *old_stats)
{
	json_t *new_stats = facts_stats(mountpoint);
	const json_t *volume;
	size_t i;

	json_array_foreach (json_object_get(new_stats, "volumes"), i, volume) {
		const char *name = json_string_value(json_object_get(volume, "name")) ?: "";
		uint64_t old_bytes = bytes_away(old_stats, name),
			 new_bytes = volume_bytes_away(volume);

		if (*inside ? strcmp(name, inside) == 0 : strncmp(name, "gpu", 3) == 0)
			json_array_append_new(
			    rows,
			    json_pack(
				"{s:o, s:I, s:I}", "gpu", output_json_text(name), "free_bytes",
				(json_int_t)facts_number(volume, "free_bytes"), "bytes",
				(json_int_t)(new_bytes > old_bytes ? new_bytes - old_bytes : 0)));
	}
	json_decref(new_stats);
}

static void rows_write(const json_t *rows)
{
	char moved[OUTPUT_TEXT_MAX], free_text[OUTPUT_TEXT_MAX];
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		output_line(stdout, "%s: %s evicted, %s free",
			    json_string_value(json_object_get(row, "gpu")),
			    output_size(facts_number(row, "bytes"), moved),
			    output_size(facts_number(row, "free_bytes"), free_text));
}

/* The path names a GPU's directory, or a mount: all of its GPUs. */
static int gpu_free(const struct command *command, const char *word, const char *size, json_t *rows)
{
	AUTO_PLACE struct place place = {0};
	AUTO_FREE char *line = NULL;
	int status = place_find(word, &place);

	if (status)
		return status;
	const char *inside = place.inside + 1;

	if (strchr(inside, '/') || (*inside && strncmp(inside, "gpu", 3) != 0))
		return cli_usage(command, "%s: expected a mount or the directory of a GPU", word);
	if (asprintf(&line, "%s%sevict=%s", inside, *inside ? "." : "", size) < 0)
		return cli_fail(word, ENOMEM);
	json_t *old_stats = facts_stats(place.mount->mountpoint);

	status = params_set(&place, 1, &line);
	if (status != CLI_USAGE)
		rows_add(rows, place.mount->mountpoint, inside, old_stats);
	json_decref(old_stats);
	return status;
}

static int gpus_free(struct cli_args *args, const char *size, int json)
{
	json_t *rows = json_array();

	for (int i = 0; i < args->argc; i++) {
		int status = gpu_free(args->command, args->argv[i], size, rows);

		place_totals.status = status ? status : place_totals.status;
	}
	return output_list("gpus", rows, json, place_totals.status, rows_write);
}

static int evict_run(struct cli_args *args)
{
	const char *size = NULL, *value = "evicted";
	int code, json = 0;

	while ((code = cli_option(args)) > 0) {
		json |= code == CLI_JSON_CODE;
		if (code == FREE)
			size = args->value;
		if (code == DISK)
			value = "disk";
	}
	if (code < 0)
		return CLI_USAGE;
	return size ? gpus_free(args, size, json) : words_move(args, value, "evicted", json);
}

static const struct cli_option fetch_options[] = {CLI_JSON, {0}};

const struct command command_fetch = {
    .name = "fetch",
    .words = "PATH...",
    .summary = "Bring files back to their GPU",
    .help = "Of a directory, all files below. Files that were not used for a longer time leave\n"
	    "if the GPU is full.",
    .options = fetch_options,
    .min_words = 1,
    .max_words = -1,
    .run = fetch_run,
};

static const struct cli_option evict_options[] = {
    {DISK, "disk", NULL, "to the disk of the mount, not to its system memory"},
    {FREE, "free", "SIZE", "PATH is a GPU: let files leave until SIZE of it is free"},
    CLI_JSON,
    {0}};

const struct command command_evict = {
    .name = "evict",
    .words = "PATH...",
    .summary = "Move files from their GPU to system memory or to a disk",
    .help = "Of a directory, all files below. The mount needs -o spill=. A process that\n"
	    "maps such a file gets it on the GPU again.\n"
	    "With --free, the files that were not used for the longest time leave; root and the\n"
	    "user of the daemon alone may do that.",
    .options = evict_options,
    .min_words = 1,
    .max_words = -1,
    .run = evict_run,
};
