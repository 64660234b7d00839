/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/options/table.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/number.h"

static void *row_field(const struct option_row *row, struct options *options)
{
	return (char *)options + row->field;
}

static int option_refuse(const struct option_row *row, const char *text, const char *reason)
{
	log_error("%s=%s: %s", row->name, text, reason);
	return -EINVAL;
}

/* The enums have the order in which the table names their values. */
static int parse_choice(const struct option_row *row, const char *text, struct options *options)
{
	unsigned *field = row_field(row, options);
	size_t length = strlen(text);
	unsigned index = 0;

	for (const char *name = row->values;; name++) {
		size_t name_length = strcspn(name, "|");
		if (name_length == length && memcmp(name, text, length) == 0) {
			*field = index;
			return 0;
		}
		name += name_length;
		if (!*name)
			break;
		index++;
	}
	log_error("%s=%s: not one of %s", row->name, text, row->values);
	return -EINVAL;
}

static int parse_count(const struct option_row *row, const char *text, struct options *options)
{
	unsigned *field = row_field(row, options);
	uint64_t value;

	if (parse_u64(text, row->min, row->max, &value) < 0) {
		log_error("%s=%s: not a number from %u to %u", row->name, text, (unsigned)row->min,
			  (unsigned)row->max);
		return -EINVAL;
	}
	*field = (unsigned)value;
	return 0;
}

/* row->min is the least valid amount; text is the whole value of the option, for errors. */
static int parse_amount_in(const struct option_row *row, const char *text, const char *number,
			   struct options *options)
{
	struct amount *field = row_field(row, options);
	size_t length = strlen(number);
	bool percent = length && number[length - 1] == '%';
	uint64_t value;

	/* parse_size_or_percent gives the percentage of 100, which is the number itself. */
	int rc = parse_size_or_percent(number, 100, &value);
	if (rc == -ERANGE && percent)
		return option_refuse(row, text, "more than 100%");
	if (rc < 0)
		return option_refuse(row, text, "not a size (use 10G, 512M or 50%)");
	if (value < row->min)
		return option_refuse(row, text, "must be more than nothing");
	*field = (struct amount){.given = true, .percent = percent, .value = value};
	return 0;
}

static int parse_amount(const struct option_row *row, const char *text, struct options *options)
{
	return parse_amount_in(row, text, text, options);
}

/* "host:64G", "disk:1T", or both with a comma. The amount of the disk follows the row's field. */
static int parse_spill(const struct option_row *row, const char *text, struct options *options)
{
	static const struct {
		const char *prefix;
		size_t field;
	} places[] = {{"host:", offsetof(struct options, spill)},
		      {"disk:", offsetof(struct options, spill_disk)}};

	options->spill = options->spill_disk = (struct amount){0};
	for (const char *item = text;; item++) {
		AUTO_FREE char *entry = strndup(item, strcspn(item, ","));
		struct option_row place = *row;
		unsigned i = 0;

		if (!entry)
			return -ENOMEM;
		while (i < 2 && strncmp(entry, places[i].prefix, strlen(places[i].prefix)) != 0)
			i++;
		if (i == 2)
			return option_refuse(row, text,
					     "not host: or disk: and a size (use host:64G, "
					     "host:25% or host:64G,disk:1T)");
		place.field = places[i].field;
		int rc = parse_amount_in(&place, text, entry + strlen(places[i].prefix), options);

		item += strlen(entry);
		if (rc < 0 || !*item)
			return rc;
	}
}

static int parse_path(const struct option_row *row, const char *text, struct options *options)
{
	char **field = row_field(row, options);

	if (text[0] != '/')
		return option_refuse(row, text, "not an absolute path");
	free(*field);
	*field = strdup(text);
	return *field ? 0 : -ENOMEM;
}

static int parse_chunk(const struct option_row *row, const char *text, struct options *options)
{
	uint64_t *field = row_field(row, options);
	uint64_t value;

	if (parse_size(text, &value) < 0)
		return option_refuse(row, text, "not a size (use 512M or 16G)");
	if (value == 0 || value % CHUNK_ALIGN)
		return option_refuse(row, text, "not a multiple of 2M");
	*field = value;
	return 0;
}

static int parse_octal(const struct option_row *row, const char *text, struct options *options)
{
	mode_t *field = row_field(row, options);
	size_t length = strlen(text);

	if (length == 0 || length > 4 || strspn(text, "01234567") != length ||
	    strtoul(text, NULL, 8) > 0777)
		return option_refuse(row, text, "not an octal mode (use 022 or 077)");
	*field = (mode_t)strtoul(text, NULL, 8);
	return 0;
}

/* (uid_t)-1 means "unchanged" to chown(2) and is no user's number. */
#define ID_MAX (UINT32_MAX - 1)

static bool user_find(const char *text, uid_t *uid)
{
	uint64_t number;
	const struct passwd *user;

	if (parse_u64(text, 0, ID_MAX, &number) == 0)
		*uid = (uid_t)number;
	else if ((user = getpwnam(text)))
		*uid = user->pw_uid;
	else
		return false;
	return true;
}

static int parse_user(const struct option_row *row, const char *text, struct options *options)
{
	if (!user_find(text, &options->uid))
		return option_refuse(row, text, "no such user");
	options->uid_given = true;
	return 0;
}

/* Splits "alice=3", in place: the name of a user may hold any character but a colon. NULL, or the
 * reason to refuse the item. */
static const char *share_parse(char *item, struct user_share *share)
{
	char *weight = strrchr(item, '=');
	uint64_t value;

	if (!weight || weight == item)
		return "not a list of users and weights (use alice=3:1001=2)";
	*weight++ = '\0';
	if (parse_u64(weight, 1, WEIGHT_MAX, &value) < 0)
		return "a weight is a number from 1 to 1000";
	if (!user_find(item, &share->uid))
		return "no such user";
	share->weight = (unsigned)value;
	return NULL;
}

static int parse_shares(const struct option_row *row, const char *text, struct options *options)
{
	AUTO_FREE char *copy = strdup(text);
	AUTO_FREE struct user_share *shares = calloc(USER_SHARES_MAX, sizeof(*shares));
	char *rest = copy;
	unsigned n = 0;

	if (!copy || !shares)
		return -ENOMEM;
	for (char *item; (item = strsep(&rest, ":")); n++) {
		const char *wrong =
		    n == USER_SHARES_MAX ? "more than 256 users" : share_parse(item, &shares[n]);

		for (unsigned i = 0; !wrong && i < n; i++)
			if (shares[i].uid == shares[n].uid)
				wrong = "a user is named twice";
		if (wrong)
			return option_refuse(row, text, wrong);
	}
	free(options->shares);
	options->shares = shares;
	shares = NULL;
	options->n_shares = n;
	return 0;
}

static int parse_group(const struct option_row *row, const char *text, struct options *options)
{
	uint64_t number;
	const struct group *group;

	if (parse_u64(text, 0, ID_MAX, &number) == 0)
		options->gid = (gid_t)number;
	else if ((group = getgrnam(text)))
		options->gid = group->gr_gid;
	else
		return option_refuse(row, text, "no such group");
	options->gid_given = true;
	return 0;
}

static int parse_allow_other(const struct option_row *row, const char *text,
			     struct options *options)
{
	(void)row, (void)text;
	options->allow_other = options->allow_other_given = true;
	return 0;
}

/* Adds the GPUs of an item, "2" or "0-3", to the set. */
static int gpus_item(const char *item, size_t length, uint64_t *set)
{
	char text[8];
	uint64_t first, last;

	if (length >= sizeof(text))
		return -EINVAL;
	memcpy(text, item, length);
	text[length] = '\0';
	char *dash = strchr(text, '-');
	if (dash)
		*dash = '\0';
	if (parse_u64(text, 0, BACKEND_DEVICES_MAX - 1, &first) < 0 ||
	    parse_u64(dash ? dash + 1 : text, first, BACKEND_DEVICES_MAX - 1, &last) < 0)
		return -EINVAL;
	for (uint64_t gpu = first; gpu <= last; gpu++)
		*set |= 1ULL << gpu;
	return 0;
}

/* Whether an item is the name or the UUID of a GPU or a MIG instance: gpu0.mig1, MIG-... */
static bool item_is_name(const char *item, size_t length)
{
	static const char uuid[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

	if (length >= 4 && strncmp(item, "gpu", 3) == 0)
		return strspn(item + 3, "0123456789.mig") == length - 3;
	if (length != 4 + strlen(uuid) ||
	    (strncmp(item, "GPU-", 4) != 0 && strncmp(item, "MIG-", 4) != 0))
		return false;
	for (size_t i = 0; uuid[i]; i++)
		if (uuid[i] == '-' ? item[4 + i] != '-' : !isxdigit((unsigned char)item[4 + i]))
			return false;
	return true;
}

/* Adds an item of a list that commas separate. */
static int gpus_append(char **list, const char *item, size_t length)
{
	char *longer;

	if (asprintf(&longer, "%s%s%.*s", *list ? *list : "", *list ? "," : "", (int)length, item) <
	    0)
		return -ENOMEM;
	free(*list);
	*list = longer;
	return 0;
}

/* Adds the numbers of the set. */
static int gpus_append_set(char **list, uint64_t set)
{
	int rc = 0;

	for (unsigned gpu = 0; rc == 0 && gpu < BACKEND_DEVICES_MAX; gpu++) {
		char text[8];

		snprintf(text, sizeof(text), "%u", gpu);
		if (set >> gpu & 1)
			rc = gpus_append(list, text, strlen(text));
	}
	return rc;
}

static int parse_gpus(const struct option_row *row, const char *text, struct options *options)
{
	AUTO_FREE char *list = NULL;
	uint64_t set = 0;
	int rc = 0;

	for (const char *item = text; rc == 0; item++) {
		size_t length = strcspn(item, ":,");
		if (item_is_name(item, length))
			rc = gpus_append(&list, item, length);
		else if (gpus_item(item, length, &set) < 0)
			return option_refuse(row, text,
					     "not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or "
					     "UUIDs)");
		item += length;
		if (!*item)
			break;
	}
	if (rc == 0)
		rc = gpus_append_set(&list, set);
	if (rc < 0)
		return rc;
	free(options->gpus);
	options->gpus = list;
	list = NULL;
	return 0;
}

#define ROW(type, name, values, fallback, help, parse, min, max)                                   \
	{#name, values, fallback, help, parse, offsetof(struct options, name), min, max},

static const struct option_row option_table[] = {OPTION_LIST(ROW)};

/* Options that both libfuse and fusermount3 know. */
static const char *const handed_on[] = {
    "ro",   "rw",    "suid",	"nosuid",  "dev",	 "nodev",     "exec",	     "noexec",
    "sync", "async", "dirsync", "noatime", "nodiratime", "symfollow", "nosymfollow",
};

/* Options that ask for the default, or are only for mount(8) and systemd. */
static const char *const ignored_options[] = {
    "defaults", "atime", "diratime", "relatime", "norelatime", "default_permissions",
    "nonempty", "auto",	 "noauto",   "nofail",	 "_netdev",    "user",
    "nouser",	"users", "owner",    "noowner",	 "group",      "nogroup",
    "comment",	"x-*",	 "X-*",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A pattern with * at its end matches all names with that beginning. */
static bool name_matches(const char *pattern, const char *name, size_t length)
{
	size_t stem = strcspn(pattern, "*");
	if (pattern[stem] == '*')
		return length > stem && memcmp(name, pattern, stem) == 0;
	return length == stem && memcmp(name, pattern, stem) == 0;
}

enum option_generic option_generic(const char *name, size_t length)
{
	for (size_t i = 0; i < COUNT(handed_on); i++)
		if (name_matches(handed_on[i], name, length))
			return OPTION_HANDED_ON;
	for (size_t i = 0; i < COUNT(ignored_options); i++)
		if (name_matches(ignored_options[i], name, length))
			return OPTION_IGNORED;
	return OPTION_UNKNOWN;
}

const struct option_row *option_at(unsigned index)
{
	return index < COUNT(option_table) ? &option_table[index] : NULL;
}

const struct option_row *option_find(const char *name, size_t length)
{
	for (size_t i = 0; i < COUNT(option_table); i++)
		if (name_matches(option_table[i].name, name, length))
			return &option_table[i];
	return NULL;
}

const char *options_name(unsigned index)
{
	if (index < COUNT(option_table))
		return option_table[index].name;
	index -= COUNT(option_table);
	if (index < COUNT(handed_on))
		return handed_on[index];
	index -= COUNT(handed_on);
	return index < COUNT(ignored_options) ? ignored_options[index] : NULL;
}

const char *options_values(unsigned index)
{
	if (!options_name(index))
		return NULL;
	return index < COUNT(option_table) ? option_table[index].values : "";
}
