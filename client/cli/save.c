/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem save: saves files with persist=disk to the disk now. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/output/output.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"
#include "common/protocol.h"

/* The daemon saves what has reached a file. What programs stored through mappings may be in pages
 * of the kernel yet, which are written back first. For a directory the kernel has no such call:
 * even syncfs(2) does not wait for the pages of FUSE. */
static int save_request(const char *path, struct gpumem_saved *saved)
{
	const unsigned written =
	    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
	AUTO_CLOSE int fd = beneath_open_real(path, O_RDONLY);

	if (fd < 0)
		return fd;
	/* A page that cannot be written back is an error of the program that stored there. */
	(void)sync_file_range(fd, 0, 0, written);
	return ioctl(fd, GPUMEM_IOC_SAVE, saved) < 0 ? -errno : 0;
}

/* Names the disk, as the words of cli_fail for ENOSPC are about a GPU. The text of the daemon may
 * lack its end. */
static int save_fail(const char *path, const struct gpumem_saved *saved)
{
	cli_error("%s: %lu could not be saved: %s (%s%.*s)", path, (unsigned long)saved->failed,
		  strerror(saved->error), saved->failed > 1 ? "the first: " : "",
		  (int)sizeof(saved->first), saved->first);
	return (int)cli_status_of(saved->error);
}

/* A mount that the command line does not name may lack a spool. */
enum lacking { SPOOL_MUST_BE, SPOOL_MAY_LACK };

static int mount_save(const char *path, json_t *all, enum lacking lacking)
{
	struct gpumem_saved saved = {0};
	int error = save_request(path, &saved);

	if (error == -EOPNOTSUPP || error == -ENOTTY) {
		if (lacking == SPOOL_MAY_LACK)
			return CLI_OK;
		cli_error("%s: the mount has no spool (gpumemfs -o spool=DIR)", path);
		return CLI_FAILED;
	}
	if (error)
		return cli_fail(path, -error);
	json_array_append_new(all, json_pack("{s:o, s:I, s:I, s:I}", "path", output_json_text(path),
					     "files", (json_int_t)saved.files, "bytes",
					     (json_int_t)saved.bytes, "failed",
					     (json_int_t)saved.failed));
	return saved.failed ? save_fail(path, &saved) : CLI_OK;
}

/* Whether the path is a file that is never saved. */
static bool file_is_volatile(const char *path)
{
	AUTO_FREE char *persist = NULL;
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
	       facts_attribute(path, "persist", &persist) == 0 && strcmp(persist, "disk") != 0;
}

static int save_word(const char *word, json_t *all)
{
	AUTO_PLACE struct place place = {0};
	int status = place_find(word, &place);

	if (!status)
		status = mount_save(place.path, all, SPOOL_MUST_BE);
	if (status || !file_is_volatile(place.path))
		return status;
	cli_error("%s: only files with persist=disk are saved (gpumem set %s persist=disk)", word,
		  word);
	return CLI_FAILED;
}

static int save_mounts(json_t *all)
{
	struct mounts mounts;
	int status = CLI_OK, error = mounts_find(&mounts);
	size_t count = 0;

	if (error)
		return cli_fail("/proc/self/mountinfo", -error);
	for (size_t i = 0; i < mounts.count; i++) {
		if (strcmp(mounts.at[i].root, "/") != 0)
			continue;
		count++;
		error = mounts_answers(&mounts.at[i]);
		int mount_status = error ? cli_fail(mounts.at[i].mountpoint, -error)
					 : mount_save(mounts.at[i].mountpoint, all, SPOOL_MAY_LACK);

		status = mount_status ? mount_status : status;
	}
	mounts_free(&mounts);
	if (count)
		return status;
	cli_error("no gpumemfs is mounted here");
	return CLI_NOT_MOUNTED;
}

static void lines_write(const json_t *all)
{
	char text[OUTPUT_TEXT_MAX];
	json_t *row;
	size_t i;

	json_array_foreach (all, i, row) {
		json_int_t files = json_integer_value(json_object_get(row, "files"));
		json_int_t bytes = json_integer_value(json_object_get(row, "bytes"));

		output_line(stdout, "%s: %lld saved, %s written",
			    json_string_value(json_object_get(row, "path")), (long long)files,
			    output_size((uint64_t)bytes, text));
	}
}

static int save_run(struct cli_args *args)
{
	int json, status = CLI_OK;

	if (cli_only_json(args, &json) < 0)
		return CLI_USAGE;
	json_t *all = json_array();

	if (!args->argc)
		status = save_mounts(all);
	for (int i = 0; i < args->argc; i++) {
		int word_status = save_word(args->argv[i], all);

		status = word_status ? word_status : status;
	}
	return output_list("saved", all, json, status, lines_write);
}

static const struct cli_option save_options[] = {CLI_JSON, {0}};

const struct command command_save = {
    .name = "save",
    .words = "[PATH...]",
    .summary = "Save files with persist=disk to the disk",
    .help = "Of a directory, all files below; without PATH, those of every mount that has a\n"
	    "spool. Only changes since the last save are written.",
    .options = save_options,
    .max_words = -1,
    .run = save_run,
};
