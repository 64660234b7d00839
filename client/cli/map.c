/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem map: shows how a file lies in the memory of its GPU. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/layout.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/core/residence.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"

#define CELLS 64

static json_t *layout_json(const struct layout_list *layout)
{
	json_t *all = json_array();

	for (size_t i = 0; i < layout->count; i++) {
		const struct layout_extent *extent = &layout->at[i];

		json_array_append_new(
		    all, json_pack("{s:I, s:I, s:I, s:s}", "offset", (json_int_t)extent->offset,
				   "bytes", (json_int_t)extent->bytes, "chunk_offset",
				   (json_int_t)extent->chunk_offset, "kind", extent->kind));
	}
	return all;
}

static void layout_table(const struct layout_list *layout)
{
	static const struct table_column columns[] = {{"OFFSET", TABLE_RIGHT},
						      {"BYTES", TABLE_RIGHT},
						      {"IN CHUNK", TABLE_RIGHT},
						      {"KIND", 0}};
	struct table table = TABLE(columns);

	for (size_t i = 0; i < layout->count; i++) {
		const struct layout_extent *extent = &layout->at[i];

		table_cell(&table, COLOUR_NONE, "%" PRIu64, extent->offset);
		table_cell(&table, COLOUR_NONE, "%" PRIu64, extent->bytes);
		table_cell(&table, COLOUR_NONE, "%" PRIu64, extent->chunk_offset);
		table_cell(&table, COLOUR_NONE, "%s", extent->kind);
	}
	table_write(&table, stdout);
	table_free(&table);
}

struct file_facts {
	uint64_t size, mapped, leases;
	char resident[RESIDENCE_TEXT_MAX];
	struct layout_list layout;
};

static int facts_read(const struct place *place, struct file_facts *facts)
{
	const char *path = place->path;
	AUTO_FREE char *extents = NULL;
	struct stat st;
	int status = place_stat(place, &st);

	if (status)
		return status;
	int error = facts_attribute(path, "extents", &extents);

	if (error == -E2BIG) {
		cli_error("%s has more extents than an attribute can hold", path);
		return CLI_FAILED;
	}
	if (!error)
		error = layout_read(extents, &facts->layout);
	if (error)
		return cli_fail(path, -error);
	struct residence residence;

	residence_read(path, &residence);
	residence_text(&residence, facts->resident);
	facts->size = (uint64_t)st.st_size;
	facts->mapped = facts_attribute_number(path, "mapped");
	facts->leases = facts_attribute_number(path, "leases");
	return CLI_OK;
}

static void facts_show(const char *path, const struct file_facts *facts)
{
	char size[OUTPUT_TEXT_MAX], mapped[OUTPUT_TEXT_MAX], memory[OUTPUT_TEXT_MAX];
	char drawn[OUTPUT_BAR_BYTES(CELLS)];
	uint64_t held = layout_bytes(&facts->layout);

	output_line(
	    stdout, "%s: %s, %s of memory on %s in %zu extent%s, %s mapped, %" PRIu64 " lease%s",
	    path, output_size(facts->size, size), output_size(held, memory), facts->resident,
	    facts->layout.count, output_plural(facts->layout.count),
	    output_size(facts->mapped, mapped), facts->leases, output_plural(facts->leases));
	if (!facts->size && !facts->layout.count)
		return;
	printf("|%s|\n", layout_draw(&facts->layout, facts->size, CELLS, output_glyphs(), drawn));
	layout_table(&facts->layout);
}

static json_t *facts_json(const char *path, const struct file_facts *facts)
{
	return json_pack("{s:o, s:I, s:I, s:s, s:I, s:I, s:o}", "path", output_json_text(path),
			 "size", (json_int_t)facts->size, "memory_bytes",
			 (json_int_t)layout_bytes(&facts->layout), "resident", facts->resident,
			 "mapped_bytes", (json_int_t)facts->mapped, "leases",
			 (json_int_t)facts->leases, "extents", layout_json(&facts->layout));
}

/* list: NULL without --json. */
static int map_path(const char *path, json_t *list)
{
	AUTO_PLACE struct place place = {0};
	struct file_facts facts = {0};
	int status = place_find(path, &place);

	if (status)
		return status;
	status = facts_read(&place, &facts);
	if (status == CLI_OK && list)
		json_array_append_new(list, facts_json(place.path, &facts));
	else if (status == CLI_OK)
		facts_show(path, &facts);
	layout_free(&facts.layout);
	return status;
}

static int map_run(struct cli_args *args)
{
	int json, status = CLI_OK, written = CLI_OK;

	if (cli_only_json(args, &json) < 0)
		return CLI_USAGE;
	json_t *list = json ? json_array() : NULL;

	for (int i = 0; i < args->argc; i++) {
		int path_status = map_path(args->argv[i], list);

		status = status ? status : path_status;
	}
	if (json && args->argc > 1)
		written = output_json(json_pack("{s:O}", "paths", list));
	else if (json && !status)
		written = output_json(json_incref(json_array_get(list, 0)));
	json_decref(list);
	return status ? status : written;
}

static const struct cli_option map_options[] = {CLI_JSON, {0}};

const struct command command_map = {
    .name = "map",
    .words = "PATH...",
    .summary = "Draw how a file lies in memory, and list its extents",
    .help = "In the drawing neighbouring chunks differ in shade, parts of shared chunks are\n"
	    "dotted, and holes are empty.",
    .options = map_options,
    .min_words = 1,
    .max_words = -1,
    .run = map_run,
};
