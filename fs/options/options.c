/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/options/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/number.h"
#include "common/system/mounts.h"
#include "common/system/sd_notify.h"
#include "common/text/closest.h"
#include "fs/options/recovery.h"
#include "fs/options/table.h"

#define SEE_HELP "(see gpumemfs -h)"

/* Flags without a letter. Only keepers and daemons use the last three. */
enum { FLAG_UPGRADE = 256, FLAG_LINE, FLAG_ADOPT, FLAG_BIND };

/* The result of getopt, before any option is checked: -s changes the checks, and may come last. */
struct arguments {
	char *lists; /* all arguments of -o, and -r and -w as options, comma-separated */
	bool helper; /* called by mount(8) as mount.TYPE */
	bool sloppy; /* -s: ignore unknown options */
	bool fstab; /* a remount by mount(8): the options of an entry in fstab are among the list */
};

static int text_append(char **list, const char *text)
{
	char *longer = NULL;
	if (asprintf(&longer, "%s%s%s", *list ? *list : "", *list ? "," : "", text) < 0)
		return -ENOMEM;
	free(*list);
	*list = longer;
	return 0;
}

/* Cuts the next item off a comma-separated list, in place; NULL at the end. A backslash quotes the
 * character that follows. */
static char *item_next(char **cursor)
{
	char *item = *cursor, *to = item, *from = item;

	if (!item)
		return NULL;
	for (; *from && *from != ','; from++) {
		if (*from == '\\' && from[1])
			from++;
		*to++ = *from;
	}
	*cursor = *from ? from + 1 : NULL;
	*to = '\0';
	return item;
}

/* Whether the next item of the list can only belong to the gpus= before: 1, 2-3, gpu0.mig1, MIG-...
 */
static bool item_is_gpus(const char *cursor)
{
	if (!cursor)
		return false;
	if (strncmp(cursor, "GPU-", 4) == 0 || strncmp(cursor, "MIG-", 4) == 0 ||
	    (strncmp(cursor, "gpu", 3) == 0 && isdigit((unsigned char)cursor[3])))
		return true;
	size_t length = strspn(cursor, "0123456789-:");
	return length && (cursor[length] == ',' || cursor[length] == '\0');
}

/* Whether the next item of the list belongs to the spill= before: disk:1T. */
static bool item_is_spill(const char *cursor)
{
	return cursor && (strncmp(cursor, "host:", 5) == 0 || strncmp(cursor, "disk:", 5) == 0);
}

/* Joins an item with the items that can only belong to its value. */
static int item_join(const char *item, char **cursor, bool (*belongs)(const char *cursor),
		     char **joined)
{
	int rc = text_append(joined, item);

	while (rc == 0 && belongs(*cursor))
		rc = text_append(joined, item_next(cursor));
	return rc;
}

static int option_unknown(const char *item, size_t length)
{
	char word[32];
	struct closest closest = {.word = word};
	const struct option_row *row;

	snprintf(word, sizeof(word), "%.*s", (int)length, item);
	for (unsigned i = 0; (row = option_at(i)); i++)
		closest_try(&closest, row->name);
	if (closest.name)
		log_error("unknown option '%.*s': did you mean %s? " SEE_HELP, (int)length, item,
			  closest.name);
	else
		log_error("unknown option '%.*s' " SEE_HELP, (int)length, item);
	return -EINVAL;
}

static int option_set_generic(const char *item, size_t length, bool sloppy, struct options *options)
{
	switch (option_generic(item, length)) {
	case OPTION_HANDED_ON:
		return item[length] ? option_unknown(item, strlen(item))
				    : text_append(&options->mount_options, item);
	case OPTION_IGNORED:
		return 0;
	case OPTION_UNKNOWN:
		break;
	}
	if (length == strlen("auto_unmount") && memcmp(item, "auto_unmount", length) == 0) {
		log_error("option 'auto_unmount' is not supported: gpumemfs unmounts at its end; "
			  "after a crash, use gpumem umount");
		return -EINVAL;
	}
	return sloppy ? 0 : option_unknown(item, length);
}

/* Whether mount(8) gives a remount the option without a wish of the user: if fstab has no entry,
 * mount(8) repeats the options of the kernel's table. */
static bool option_is_of_remount(const char *item, size_t length)
{
	static const char *const names[] = {"remount",	"user_id",     "group_id",
					    "max_read", "allow_other", NULL};

	for (const char *const *name = names; *name; name++)
		if (strlen(*name) == length && memcmp(*name, item, length) == 0)
			return true;
	return false;
}

static int option_set(const char *item, const struct arguments *arguments, struct options *options)
{
	size_t length = strcspn(item, "=");
	const struct option_row *row = option_find(item, length);
	bool remount = options->role == ROLE_REMOUNT;

	if (remount && option_is_of_remount(item, length))
		return 0;
	if (!row)
		return option_set_generic(item, length, arguments->sloppy, options);
	if (remount && !arguments->fstab) {
		log_error("option '%s' cannot be changed by a remount (see .gpumem/params in "
			  "gpumem(7))",
			  row->name);
		return -EINVAL;
	}
	if (!*row->values && item[length]) {
		log_error("%s: takes no value", item);
		return -EINVAL;
	}
	if (*row->values && !item[length]) {
		log_error("option '%s' needs a value (%s=%s)", row->name, row->name, row->values);
		return -EINVAL;
	}
	return row->parse(row, item[length] ? item + length + 1 : "", options);
}

/* Sets all options of a list. The values of gpus= and spill= may have commas. */
static int options_set_all(const struct arguments *arguments, struct options *options)
{
	char *cursor = arguments->lists, *item;

	while ((item = item_next(&cursor))) {
		AUTO_FREE char *joined = NULL;
		int rc = 0;
		if (!*item)
			continue;
		if (strncmp(item, "gpus=", 5) == 0)
			rc = item_join(item, &cursor, item_is_gpus, &joined);
		else if (strncmp(item, "spill=", 6) == 0)
			rc = item_join(item, &cursor, item_is_spill, &joined);
		if (rc == 0)
			rc = option_set(joined ?: item, arguments, options);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int options_set_fallbacks(struct options *options)
{
	const struct option_row *row;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && (row = option_at(i)); i++)
		if (row->fallback)
			rc = row->parse(row, row->fallback, options);
	return rc;
}

/* Resolves the path's parent, but not the last part of the path. NULL on failure. */
static char *resolve_parent(const char *path)
{
	AUTO_FREE char *copy = strdup(path);
	size_t length = copy ? strlen(copy) : 0;
	char *resolved = NULL;

	while (length > 1 && copy[length - 1] == '/')
		copy[--length] = 0;
	char *slash = copy ? strrchr(copy, '/') : NULL;
	const char *last = slash ? slash + 1 : copy;

	if (!copy || !*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
		return NULL;
	if (slash)
		*slash = 0;
	AUTO_FREE char *parent = realpath(!slash ? "." : slash == copy ? "/" : copy, NULL);

	if (!parent || asprintf(&resolved, "%s/%s", parent[1] ? parent : "", last) < 0)
		return NULL;
	return resolved;
}

/* Sets the absolute mountpoint. If realpath fails, the path stays unresolved, and the mount reports
 * the reason. If the path may be a mount without a daemon, nothing below the parent is resolved, as
 * the path itself would not answer. A keeper passes on a resolved path. */
static int mountpoint_set(const char *path, struct options *options)
{
	bool handed = options->role == ROLE_DAEMON || options->role == ROLE_KEEPER ||
		      options->role == ROLE_BINDER;
	bool may_hang = options->role == ROLE_UPGRADE || notify_has_fds();

	if (handed && path[0] == '/')
		options->mountpoint = strdup(path);
	else
		options->mountpoint = may_hang ? resolve_parent(path) : realpath(path, NULL);
	if (options->mountpoint)
		return 0;
	if (path[0] == '/') {
		options->mountpoint = strdup(path);
	} else {
		AUTO_FREE char *folder = getcwd(NULL, 0);
		if (folder && asprintf(&options->mountpoint, "%s/%s", folder, path) < 0)
			options->mountpoint = NULL;
	}
	return options->mountpoint ? 0 : -ENOMEM;
}

static int positionals_set(int count, char **texts, struct options *options)
{
	if (count > 2) {
		log_error("unexpected argument '%s' " SEE_HELP, texts[2]);
		return -EINVAL;
	}
	const char *mountpoint = count ? texts[count - 1] : "";
	if (!*mountpoint) {
		log_error("no mountpoint given (usage: gpumemfs [SOURCE] MOUNTPOINT [-o OPTIONS])");
		return -EINVAL;
	}
	if (count == 2 && !(options->source = strdup(texts[0])))
		return -ENOMEM;
	return mountpoint_set(mountpoint, options);
}

static int flag_unknown(int argc, char **argv)
{
	const char *text = optind > 0 && optind <= argc ? argv[optind - 1] : "";

	/* Report a long flag as a whole; a short flag may be in the middle of a group. */
	if (optopt == 0 || strncmp(text, "--", 2) == 0)
		log_error("unknown argument '%s' " SEE_HELP, text);
	else
		log_error("unknown argument '-%c' " SEE_HELP, optopt);
	return -EINVAL;
}

/* The descriptor of --line, --adopt or --bind, given by a keeper or a daemon. */
static int line_set(enum role role, const char *text, struct options *options)
{
	uint64_t line;

	if (parse_u64(text, 0, INT32_MAX, &line) < 0) {
		log_error("'%s': not a descriptor", text);
		return -EINVAL;
	}
	options->role = role;
	options->line = (int)line;
	return 0;
}

static int flag_set(int flag, struct arguments *arguments, struct options *options)
{
	switch (flag) {
	case 'o':
		return text_append(&arguments->lists, optarg);
	case 'r':
		return text_append(&arguments->lists, "ro");
	case 'w':
		return text_append(&arguments->lists, "rw");
	case 'f':
		if (arguments->helper)
			options->fake = true;
		else
			options->foreground = true;
		return 0;
	case 'd':
		options->debug = options->foreground = true;
		return 0;
	case 's':
		arguments->sloppy = true;
		return 0;
	case FLAG_UPGRADE:
		options->role = ROLE_UPGRADE;
		return 0;
	case FLAG_LINE:
		return line_set(ROLE_DAEMON, optarg, options);
	case FLAG_ADOPT:
		return line_set(ROLE_KEEPER, optarg, options);
	case FLAG_BIND:
		return line_set(ROLE_BINDER, optarg, options);
	case 'N':
		log_error("-N is not supported: mount from inside the namespace");
		return -EINVAL;
	default: /* -n, -v, -t TYPE: mount(8) gives these to every helper */
		return 0;
	}
}

static int flags_read(int argc, char **argv, struct arguments *arguments, struct options *options)
{
	static const struct option longs[] = {
	    {"help", no_argument, NULL, 'h'},
	    {"version", no_argument, NULL, 'V'},
	    {"upgrade", no_argument, NULL, FLAG_UPGRADE},
	    {"line", required_argument, NULL, FLAG_LINE},
	    {"adopt", required_argument, NULL, FLAG_ADOPT},
	    {"bind", required_argument, NULL, FLAG_BIND},
	    {NULL, 0, NULL, 0},
	};
	int flag;

	optind = 0; /* glibc: start again, even if getopt was used before */
	opterr = 0;
	while ((flag = getopt_long(argc, argv, ":o:fdhVnsvrwt:N:", longs, NULL)) != -1) {
		int rc = 0;
		options->help = flag == 'h';
		options->version = flag == 'V';
		if (options->help || options->version)
			return 0;
		if (flag == '?')
			return flag_unknown(argc, argv);
		if (flag == ':') {
			log_error("-%c needs an argument " SEE_HELP, optopt);
			return -EINVAL;
		}
		rc = flag_set(flag, arguments, options);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int spill_check(const struct options *options)
{
	const char *needs = options->keep_free.value ? "keep_free"
			    : options->n_shares	     ? "shares"
						     : NULL;

	if (options->spill_disk.given && !options->spool) {
		log_error("spill=disk: needs spool=DIR, a directory on the disk");
		return -EINVAL;
	}
	if (options->spill.given || options->spill_disk.given || !needs)
		return 0;
	log_error("%s=: files can only leave a GPU with spill=", needs);
	return -EINVAL;
}

/* mount(8) gives a remount the options of an entry in fstab and new ones, and leaves out suid, dev
 * and exec; or, without an entry, all options of the kernel's table with the changes, where a flag
 * that is missing is off. */
static int remount_begin(struct arguments *arguments, struct options *options)
{
	bool whole_table = option_list_has(arguments->lists, "user_id");

	options->role = ROLE_REMOUNT;
	arguments->fstab = arguments->helper && !whole_table;
	return whole_table
		   ? text_append(&options->mount_options, "rw,suid,dev,exec,async,symfollow")
		   : 0;
}

static int options_read(int argc, char **argv, struct arguments *arguments, struct options *options)
{
	int rc = flags_read(argc, argv, arguments, options);
	if (rc < 0 || options->help || options->version)
		return rc;
	if (options->role == ROLE_MOUNT && option_list_has(arguments->lists, "remount"))
		rc = remount_begin(arguments, options);
	if (rc == 0)
		rc = options_set_fallbacks(options);
	if (rc == 0)
		rc = options_set_all(arguments, options);
	if (rc < 0)
		return rc;
	if (!options->allow_other_given)
		options->allow_other = geteuid() == 0;
	if (options->debug)
		options->log_level = LOG_LEVEL_DEBUG;
	options->noatime = option_list_has(options->mount_options, "noatime");
	recovery_decide(options);
	if (options->standby == STANDBY_ON && options->recovery == RECOVERY_OFF) {
		log_error("standby=on: needs recovery=transparent or recovery=remount%s%s",
			  *options->recovery_why ? ": " : "", options->recovery_why);
		return -EINVAL;
	}
	rc = spill_check(options);
	if (rc < 0)
		return rc;
	return positionals_set(argc - optind, argv + optind, options);
}

int options_parse(int argc, char **argv, struct options *options)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;
	const char *name = slash ? slash + 1 : argc ? argv[0] : "";
	struct arguments arguments = {.helper = strncmp(name, "mount.", 6) == 0};

	*options = (struct options){.uid = getuid(), .gid = getgid()};
	int rc = options_read(argc, argv, &arguments, options);
	if (rc == -ENOMEM)
		log_error("no memory for the command line");
	if (rc < 0)
		options_free(options);
	free(arguments.lists);
	return rc < 0 ? -EINVAL : 0;
}

void options_free(struct options *options)
{
	free(options->source);
	free(options->mountpoint);
	free(options->gpus);
	free(options->shares);
	free(options->spool);
	free(options->mount_options);
	*options = (struct options){0};
}

void options_help(FILE *out, const char *program)
{
	const struct option_row *row;

	fprintf(out,
		"usage: %s [SOURCE] MOUNTPOINT [-o OPTIONS] [-f] [-d]\n"
		"       %s --upgrade MOUNTPOINT\n"
		"Mounts the memory of GPUs as files.\n\n"
		"  -o OPTIONS      comma-separated, as below; may be repeated\n"
		"  -f              stay in the foreground\n"
		"  -d              the same, and log everything\n"
		"  --upgrade       have this program serve a mount with recovery=, under load\n"
		"  -h, --help      print this\n"
		"  -V, --version   print the version\n\n"
		"options (and their defaults):\n",
		program, program);
	for (unsigned i = 0; (row = option_at(i)); i++) {
		char syntax[64];
		snprintf(syntax, sizeof(syntax), "%s%s%s", row->name, *row->values ? "=" : "",
			 row->values);
		fprintf(out, "  %-36s %s", syntax, row->help);
		fprintf(out, row->fallback ? " (%s)\n" : "\n", row->fallback);
	}
	fprintf(
	    out,
	    "\nThe generic options of mount(8) are accepted too: ro, noexec, nofail and others.\n"
	    "See gpumemfs(8) for the options and gpumem(7) for the files.\n");
}

uint64_t amount_bytes(const struct amount *amount, uint64_t whole, uint64_t fallback)
{
	if (!amount->given)
		return fallback;
	if (!amount->percent)
		return amount->value;
	return whole / 100 * amount->value + whole % 100 * amount->value / 100;
}

unsigned options_weight(const struct options *options, uid_t uid)
{
	for (unsigned i = 0; i < options->n_shares; i++)
		if (options->shares[i].uid == uid)
			return options->shares[i].weight;
	return 1;
}
