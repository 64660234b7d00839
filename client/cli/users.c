/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem users: shows what each user has of a mount. */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/output/output.h"
#include "common/number.h"

struct listing {
	json_t *all;
	bool one_user;
	uid_t uid;
};

/* The account of a user with the user's name and the mount. */
static int account_add(struct listing *listing, const char *mountpoint, const json_t *account)
{
	uid_t uid = (uid_t)facts_number(account, "uid");

	if (listing->one_user && uid != listing->uid)
		return 0;
	json_t *row = json_pack("{s:o, s:o}", "mount", output_json_text(mountpoint), "user",
				output_json_user(uid));

	if (!row || json_object_update_missing(row, (json_t *)account) ||
	    json_array_append_new(listing->all, row))
		return -ENOMEM;
	return 0;
}

static int users_of_mount(const char *mountpoint, const char *inside, void *context)
{
	json_t *users = facts_users(mountpoint), *account;
	size_t i;
	int error = users ? 0 : -errno;

	(void)inside;
	json_array_foreach (json_object_get(users, "users"), i, account)
		error = error ? error : account_add(context, mountpoint, account);
	json_decref(users);
	return error;
}

static uint64_t used(const json_t *row, const char *kind)
{
	return facts_number(json_object_get(row, kind), "used");
}

static void bytes_cell(struct table *table, uint64_t bytes)
{
	char text[OUTPUT_TEXT_MAX];

	table_cell(table, COLOUR_NONE, "%s", output_size(bytes, text));
}

/* "used/limit", or "used" without a limit. */
static void limited_cell(struct table *table, const json_t *row, const char *kind, bool is_bytes)
{
	const json_t *usage = json_object_get(row, kind);
	uint64_t has = facts_number(usage, "used"), limit = facts_number(usage, "limit");
	enum output_colour colour = limit && has >= limit - limit / 16 ? COLOUR_WARN : COLOUR_NONE;
	char used_text[OUTPUT_TEXT_MAX], limit_text[OUTPUT_TEXT_MAX];

	if (is_bytes) {
		output_size(has, used_text);
		output_size(limit, limit_text);
	} else {
		snprintf(used_text, sizeof(used_text), "%" PRIu64, has);
		snprintf(limit_text, sizeof(limit_text), "%" PRIu64, limit);
	}
	if (json_is_integer(json_object_get(usage, "limit")))
		table_cell(table, colour, "%s/%s", used_text, limit_text);
	else
		table_cell(table, colour, "%s", used_text);
}

static void user_row(struct table *table, const json_t *row)
{
	uint64_t gpu = used(row, "gpu_bytes"), spill_host = used(row, "spill_host_bytes"),
		 spill_disk = used(row, "spill_disk_bytes"), all = used(row, "bytes");
	uint64_t of_gpus = gpu + spill_host + spill_disk;

	table_user(table, COLOUR_STRONG, row);
	bytes_cell(table, gpu);
	bytes_cell(table, all > of_gpus ? all - of_gpus : 0);
	limited_cell(table, row, "spill_host_bytes", true);
	limited_cell(table, row, "spill_disk_bytes", true);
	bytes_cell(table, used(row, "held_bytes"));
	limited_cell(table, row, "metadata_bytes", true);
	limited_cell(table, row, "descriptors", false);
	limited_cell(table, row, "leases", false);
	limited_cell(table, row, "connections", false);
	table_cell(table, COLOUR_NONE, "%s", json_string_value(json_object_get(row, "mount")));
}

static void users_write(const json_t *all)
{
	static const struct table_column columns[] = {
	    {"USER", 0},
	    {"GPU", TABLE_RIGHT},
	    {"HOST", TABLE_RIGHT},
	    {"SPILL", TABLE_RIGHT},
	    {"DISK", TABLE_RIGHT},
	    {"HELD", TABLE_RIGHT},
	    {"NAMES", TABLE_RIGHT | TABLE_OPTIONAL},
	    {"DESCRIPTORS", TABLE_RIGHT | TABLE_OPTIONAL},
	    {"LEASES", TABLE_RIGHT | TABLE_OPTIONAL},
	    {"CONNECTIONS", TABLE_RIGHT | TABLE_OPTIONAL},
	    {"MOUNT", 0},
	};

	table_list(TABLE(columns), all, user_row);
}

static bool user_find(const char *name, struct listing *listing)
{
	const struct passwd *user = getpwnam(name);
	uint64_t uid;

	listing->one_user = true;
	if (user)
		listing->uid = user->pw_uid;
	else if (parse_u64(name, 0, (uid_t)-2, &uid) == 0)
		listing->uid = (uid_t)uid;
	else
		return false;
	return true;
}

static int users_run(struct cli_args *args)
{
	struct listing listing = {0};
	bool json = false;
	int code;

	while ((code = cli_option(args)) > 0) {
		if (code == CLI_JSON_CODE)
			json = true;
		else if (!user_find(args->value, &listing))
			return cli_usage(args->command, "no such user: %s", args->value);
	}
	if (code < 0)
		return CLI_USAGE;
	listing.all = json_array();
	int status = place_each(args->argc ? args->argv[0] : NULL, users_of_mount, &listing);

	return output_list("users", listing.all, json, status, users_write);
}

static const struct cli_option users_options[] = {
    CLI_JSON, {'u', "user", "USER", "only this user, by name or number"}, {0}};

const struct command command_users = {
    .name = "users",
    .words = "[PATH]",
    .summary = "Show what each user has of a mount: memory, names, leases",
    .help = "Without PATH, of every mount. Root sees all users, other users see themselves.",
    .options = users_options,
    .max_words = 1,
    .run = users_run,
};
