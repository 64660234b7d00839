/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem verify: the checksum of a file's bytes as they are in memory. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "client/cli/buffer.h"
#include "client/cli/cli.h"
#include "client/cli/hash.h"
#include "client/cli/mounts.h"
#include "client/cli/output.h"
#include "common/defer.h"

static int sum_of(const char *path, enum hash_kind kind, char text[HASH_TEXT_MAX], uint64_t *bytes)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return hash_file(fd, kind, buffer_threads(), text, bytes);
}

static int report(const char *path, const char *sum, const char *wanted, uint64_t bytes, int json)
{
	bool same = !wanted || strcmp(sum, wanted) == 0;
	const char *name = strlen(sum) == 16 ? "xxh3" : "xxh128";

	if (json) {
		json_t *all = json_pack("{s:s, s:s, s:s, s:I}", "path", path, "algorithm", name,
					"sum", sum, "bytes", (json_int_t)bytes);

		if (all && wanted)
			json_object_set_new(all, "matches", json_boolean(same));
		output_json(all);
	} else if (wanted && same) {
		printf("%s: OK\n", path);
	} else if (!wanted) {
		printf("%s:%s  %s\n", name, sum, path);
	}
	if (!same)
		cli_error("%s: is %s:%s, not %s", path, name, sum, wanted);
	return same ? CLI_OK : CLI_WRONG;
}

static int run(struct cli_args *args)
{
	char sum[HASH_TEXT_MAX] = "", wanted[HASH_TEXT_MAX] = "";
	enum hash_kind kind = HASH_64;
	struct place place;
	uint64_t bytes = 0;
	int json;

	if (cli_only_json(args, &json) < 0)
		return CLI_USAGE;
	const char *path = args->argv[0];

	if (args->argc > 1 && hash_parse(args->argv[1], &kind, wanted) < 0)
		return cli_usage(args->command, "%s is no XXH3 sum: 16 or 32 hex digits",
				 args->argv[1]);
	int status = place_find(path, &place);

	if (status)
		return status;
	int error = sum_of(place.path, kind, sum, &bytes);

	if (error)
		status = cli_fail(path, -error);
	else
		status = report(path, sum, args->argc > 1 ? wanted : NULL, bytes, json);
	place_free(&place);
	return status;
}

static const struct cli_option options[] = {CLI_JSON, {0}};

const struct command command_verify = {
    .name = "verify",
    .words = "PATH [SUM]",
    .summary = "Print the XXH3 checksum of a file's bytes, or hold it against SUM",
    .more = "Of 32 digits, SUM is of XXH3's 128 bits. They are those of xxhsum.",
    .options = options,
    .min_words = 1,
    .max_words = 2,
    .run = run,
};
