/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem ls: lists files with facts that ls(1) does not have. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/core/residence.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"

struct listing {
	bool all;	/* list names that begin with a dot */
	bool directory; /* list the directory itself */
	bool json;
	json_t *entries;
	int status;
};

static const char *mode_type(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "link";
	case S_IFIFO:
		return "fifo";
	case S_IFCHR:
		return "character device";
	case S_IFBLK:
		return "block device";
	default:
		return "socket";
	}
}

/* "rwxr-x--x", with the set-ID and sticky bits as ls(1) shows them. */
static const char *mode_text(mode_t mode, char text[10])
{
	for (unsigned i = 0; i < 9; i++)
		text[i] = mode >> (8 - i) & 1 ? "rwx"[i % 3] : '-';
	for (unsigned i = 0; i < 3; i++) {
		char *execute = &text[3 * i + 2];

		if (mode & S_ISUID >> i)
			*execute = (*execute == 'x' ? "sst" : "SST")[i];
	}
	text[9] = '\0';
	return text;
}

static void entry_add_file_facts(json_t *entry, const char *path)
{
	AUTO_FREE char *page_size = NULL;
	struct residence residence;
	char text[RESIDENCE_TEXT_MAX];

	if (facts_attribute(path, "page_size", &page_size) == 0)
		json_object_set_new(entry, "page_size", json_string(page_size));
	residence_read(path, &residence);
	if (residence.count)
		json_object_set_new(entry, "resident",
				    json_string(residence_text(&residence, text)));
	json_object_set_new(entry, "leases",
			    json_integer((json_int_t)facts_attribute_number(path, "leases")));
	json_object_set_new(entry, "mapped_bytes",
			    json_integer((json_int_t)facts_attribute_number(path, "mapped")));
}

/* The memory of a directory is that of all files below. */
static void entry_add(struct listing *listing, const char *path, const char *shown)
{
	struct stat st;
	char mode[10];

	if (lstat(path, &st) < 0) {
		listing->status = cli_fail(shown, errno);
		return;
	}
	uint64_t memory = S_ISDIR(st.st_mode) ? facts_attribute_number(path, "rbytes")
					      : (uint64_t)st.st_blocks * 512;
	json_t *entry =
	    json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I}", "name", output_json_text(shown),
		      "type", mode_type(st.st_mode), "mode", mode_text(st.st_mode, mode), "uid",
		      (json_int_t)st.st_uid, "size", (json_int_t)st.st_size, "memory_bytes",
		      (json_int_t)memory, "modified", (json_int_t)st.st_mtim.tv_sec);

	if (!entry) {
		listing->status = cli_fail(shown, ENOMEM);
		return;
	}
	if (S_ISREG(st.st_mode))
		entry_add_file_facts(entry, path);
	json_array_append_new(listing->entries, entry);
}

static int name_filter(const struct dirent *entry, bool all)
{
	if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
		return 0;
	return all || entry->d_name[0] != '.';
}

static void directory_add(struct listing *listing, const char *path)
{
	struct dirent **names;
	int count = scandir(path, &names, NULL, alphasort);

	if (count < 0)
		listing->status = cli_fail(path, errno);
	for (int i = 0; i < count; i++) {
		AUTO_FREE char *inner = NULL;

		if (name_filter(names[i], listing->all) &&
		    asprintf(&inner, "%s/%s", path, names[i]->d_name) >= 0)
			entry_add(listing, inner, names[i]->d_name);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

static const char *entry_text(const json_t *entry, const char *name)
{
	const char *text = json_string_value(json_object_get(entry, name));

	return text ? text : "-";
}

static void entry_row(struct table *table, const json_t *entry)
{
	char size[OUTPUT_TEXT_MAX], memory[OUTPUT_TEXT_MAX], mapped[OUTPUT_TEXT_MAX];
	const char *type = entry_text(entry, "type"), *mode = entry_text(entry, "mode");
	bool file = strcmp(type, "file") == 0, folder = strcmp(type, "directory") == 0;

	table_cell(table, COLOUR_DIM, "%c%s",
		   file			       ? '-'
		   : strcmp(type, "fifo") == 0 ? 'p'
					       : type[0],
		   mode);
	table_cell(table, COLOUR_NONE, "%s", output_size(facts_number(entry, "size"), size));
	table_cell(table, COLOUR_NONE, "%s",
		   output_size(facts_number(entry, "memory_bytes"), memory));
	table_cell(table, COLOUR_NONE, "%s", entry_text(entry, "resident"));
	table_cell(table, COLOUR_NONE, "%s", entry_text(entry, "page_size"));
	if (file) {
		table_cell(table, COLOUR_NONE, "%" PRIu64, facts_number(entry, "leases"));
		table_cell(table, COLOUR_NONE, "%s",
			   output_size(facts_number(entry, "mapped_bytes"), mapped));
	} else {
		table_cell(table, COLOUR_NONE, "-");
		table_cell(table, COLOUR_NONE, "-");
	}
	table_cell(table, folder ? COLOUR_STRONG : COLOUR_NONE, "%s%s", entry_text(entry, "name"),
		   folder ? "/" : "");
}

static void entries_write(const json_t *entries)
{
	static const struct table_column columns[] = {
	    {"MODE", TABLE_OPTIONAL},
	    {"SIZE", TABLE_RIGHT},
	    {"MEMORY", TABLE_RIGHT},
	    {"WHERE", 0},
	    {"PAGES", TABLE_OPTIONAL},
	    {"SHARERS", TABLE_RIGHT},
	    {"MAPPED", TABLE_RIGHT | TABLE_OPTIONAL},
	    {"NAME", 0},
	};

	table_list(TABLE(columns), entries, entry_row);
}

static void word_list(struct listing *listing, const char *word)
{
	AUTO_PLACE struct place place = {0};
	int status = place_find(word, &place);
	struct stat st;

	if (status) {
		listing->status = status;
		return;
	}
	if (!listing->directory && stat(place.path, &st) == 0 && S_ISDIR(st.st_mode))
		directory_add(listing, place.path);
	else
		entry_add(listing, place.path, word);
}

static int ls_run(struct cli_args *args)
{
	struct listing listing = {.entries = json_array()};
	int code;

	while ((code = cli_option(args)) > 0) {
		listing.all |= code == 'a';
		listing.directory |= code == 'd';
		listing.json |= code == CLI_JSON_CODE;
	}
	if (code < 0)
		return CLI_USAGE;
	for (int i = 0; i < args->argc; i++)
		word_list(&listing, args->argv[i]);
	if (!args->argc)
		word_list(&listing, ".");
	return output_list("entries", listing.entries, listing.json, listing.status, entries_write);
}

static const struct cli_option ls_options[] = {
    {'a', "all", NULL, "include names that begin with a dot"},
    {'d', "directory", NULL, "list directories themselves, not their contents"},
    CLI_JSON,
    {0},
};

const struct command command_ls = {
    .name = "ls",
    .words = "[PATH...]",
    .summary = "List files with their memory, page size, sharers and mappings",
    .help =
	"MEMORY of a directory is that of all files below. SHARERS counts leases: processes that\n"
	"share the file. MAPPED: bytes that the daemon has mapped through the BAR.",
    .options = ls_options,
    .max_words = -1,
    .run = ls_run,
};
