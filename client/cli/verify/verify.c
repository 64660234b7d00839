/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem verify: prints or compares the checksum of a file's bytes in memory. */
#include "client/cli/verify/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "client/cli/core/buffer.h"
#include "client/cli/core/cli.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"

/* The request of the command line. */
struct request {
	const char *path;
	const char *expected_sum; /* the digits of SUM; NULL: no SUM */
	char digits[HASH_TEXT_MAX];
	enum hash_kind kind;
	bool named; /* the user named the kind */
	enum verify_device device;
	bool json;
};

static int file_sum(const char *path, enum hash_kind kind, struct verified *found)
{
	AUTO_CLOSE int fd = verify_open(path, O_RDONLY);
	int error = fd < 0 ? fd : hash_file(fd, kind, buffer_threads(), found->sum, &found->bytes);

	if (error == -ELIBACC) {
		cli_error("sha256 is computed by libcrypto.so.3 of OpenSSL, which is not here "
			  "(Debian: libssl3)");
		return CLI_FAILED;
	}
	return error ? cli_fail(path, -error) : CLI_OK;
}

static json_t *report_json(const struct request *request, const char *path,
			   const struct verified *found)
{
	json_t *all = json_pack("{s:o, s:s, s:s, s:I}", "path", output_json_text(path), "algorithm",
				hash_name(request->kind), "sum", found->sum, "bytes",
				(json_int_t)found->bytes);

	if (all && request->expected_sum)
		json_object_set_new(all, "matches",
				    json_boolean(strcmp(found->sum, request->expected_sum) == 0));
	if (all && request->kind == HASH_TREE)
		json_object_set_new(all, "on", json_string(found->on_gpu ? "gpu" : "cpu"));
	if (all && found->on_gpu) {
		json_object_set_new(all, "gpu_bytes", json_integer((json_int_t)found->on_gpu));
		json_object_set_new(all, "gpu_seconds", json_real(found->seconds));
		json_object_set_new(all, "checked_bytes", json_integer((json_int_t)found->checked));
	}
	return all;
}

static int report_write(const struct request *request, const char *path,
			const struct verified *found)
{
	const char *name = hash_name(request->kind);
	bool matches = !request->expected_sum || strcmp(found->sum, request->expected_sum) == 0;
	int status = CLI_OK;

	if (request->json)
		status = output_json(report_json(request, path, found));
	else if (!request->expected_sum)
		output_line(stdout, "%s:%s  %s", name, found->sum, path);
	else if (matches)
		output_line(stdout, "%s: OK", path);
	if (!matches)
		cli_error("%s: is %s:%s, not %s", path, name, found->sum, request->expected_sum);
	return matches ? status : CLI_WRONG;
}

static int option_take(struct request *request, const struct cli_args *args, int code)
{
	static const char *const places[] = {
	    [VERIFY_AUTO] = "auto", [VERIFY_CPU] = "cpu", [VERIFY_GPU] = "gpu"};

	if (code == CLI_JSON_CODE) {
		request->json = true;
		return 0;
	}
	if (code == 'a') {
		request->named = hash_find(args->value, &request->kind) == 0;
		return request->named
			   ? 0
			   : cli_usage(args->command,
				       "--algorithm=%s: xxh3, xxh128, sha256 or xxh64-tree",
				       args->value);
	}
	for (unsigned i = VERIFY_AUTO; i <= VERIFY_GPU; i++)
		if (strcmp(args->value, places[i]) == 0) {
			request->device = (enum verify_device)i;
			return 0;
		}
	return cli_usage(args->command, "--on=%s: auto, cpu or gpu", args->value);
}

/* Combines the arguments with the options: 0 or CLI_USAGE. */
static int sum_take(struct request *request, const struct cli_args *args)
{
	const char *word = args->argc > 1 ? args->argv[1] : NULL;
	enum hash_kind kind;

	if (request->device == VERIFY_GPU && request->named && request->kind != HASH_TREE)
		return cli_usage(args->command, "a GPU computes xxh64-tree, and not %s",
				 hash_name(request->kind));
	if (request->device == VERIFY_GPU)
		request->kind = HASH_TREE;
	if (!word)
		return 0;
	if (hash_parse(word, &kind, request->digits) < 0)
		return cli_usage(args->command,
				 "%s is not a sum: 16 or 32 hex digits of XXH3, 64 of SHA-256, or "
				 "xxh64-tree: and 16",
				 word);
	if (request->kind == HASH_TREE && strlen(word) == 16)
		kind = HASH_TREE;
	if ((request->named || request->kind == HASH_TREE) && kind != request->kind)
		return cli_usage(args->command, "%s is not a sum of %s", word,
				 hash_name(request->kind));
	request->kind = kind;
	request->expected_sum = request->digits;
	return 0;
}

static int options_take(struct request *request, struct cli_args *args)
{
	int code, error = 0;

	while (!error && (code = cli_option(args)) > 0)
		error = option_take(request, args, code);
	if (error || code < 0)
		return CLI_USAGE;
	request->path = args->argv[0];
	return sum_take(request, args);
}

static int verify_run(struct cli_args *args)
{
	struct request request = {.kind = HASH_64};
	struct verified found = {0};
	AUTO_PLACE struct place place = {0};
	int status = options_take(&request, args);

	if (status == CLI_OK)
		status = place_find(request.path, &place);
	if (status != CLI_OK)
		return status;
	status = request.kind == HASH_TREE ? verify_tree(place.path, request.device, &found)
					   : file_sum(place.path, request.kind, &found);
	if (status == CLI_OK)
		status = report_write(&request, request.path, &found);
	return status;
}

static const struct cli_option verify_options[] = {
    {'a', "algorithm", "NAME",
     "xxh3 (default), xxh128, sha256, or xxh64-tree, which a GPU can compute"},
    {'o', "on", "WHERE", "auto, cpu or gpu: where xxh64-tree is computed"},
    CLI_JSON,
    {0},
};

const struct command command_verify = {
    .name = "verify",
    .words = "PATH [SUM]",
    .summary = "Print the checksum of a file's bytes, or compare it with SUM",
    .help = "A SUM of 16 digits is XXH3, of 32 digits XXH3 with 128 bits (xxhsum), of 64 digits\n"
	    "SHA-256 (sha256sum), unless a name stands in front. gpumem(1) defines xxh64-tree.",
    .options = verify_options,
    .min_words = 1,
    .max_words = 2,
    .run = verify_run,
};
