/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem doctor MOUNT: the settings that the daemon has chosen, with the reasons. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/doctor/doctor.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"

/* In the order of the table in gpumemfs(8). */
static const char *const decision_names[] = {
    "backend",	 "threads",  "io_uring",    "clone_fd", "busy_poll", "cache",
    "readahead", "recovery", "passthrough", "mmap",	"sharing",   "streaming_copies"};

/* Of a GPU; params has the GPU's name in front. */
static const char *const gpu_names[] = {"bar", "crossover_write", "crossover_read"};

/* Splits "off: REASON". A number has a word behind, which the reason repeats. */
static char *reason_split(char *line)
{
	char *blank = strchr(line, ' ');

	if (!blank)
		return NULL;
	*blank = '\0';
	if (blank == line || blank[-1] != ':')
		return NULL;
	blank[-1] = '\0';
	return blank + 1;
}

/* A daemon of another version may not have the setting. */
static void decision_add(json_t *decisions, const char *mountpoint, const char *params,
			 const char *name)
{
	AUTO_FREE char *value = facts_line(params, name), *reason_name = NULL, *reason = NULL;

	if (!value || asprintf(&reason_name, "why.%s", name) < 0)
		return;
	const char *inline_reason = reason_split(value);

	reason = facts_line(params, reason_name);
	json_array_append_new(decisions, json_pack("{s:o, s:s, s:o, s:o}", "mount",
						   output_json_text(mountpoint), "name", name,
						   "value", output_json_text(value), "why",
						   output_json_text(inline_reason ? inline_reason
								    : reason	  ? reason
										  : "")));
}

void doctor_decisions(struct doctor *doctor, const char *mountpoint, const char *params,
		      const json_t *volumes)
{
	const json_t *volume;
	size_t n;

	for (unsigned i = 0; i < sizeof(decision_names) / sizeof(decision_names[0]); i++)
		decision_add(doctor->decisions, mountpoint, params, decision_names[i]);
	json_array_foreach (volumes, n, volume) {
		const char *gpu = json_string_value(json_object_get(volume, "name"));

		for (unsigned i = 0; gpu && i < sizeof(gpu_names) / sizeof(gpu_names[0]); i++) {
			AUTO_FREE char *name = NULL;

			if (asprintf(&name, "%s.%s", gpu, gpu_names[i]) >= 0)
				decision_add(doctor->decisions, mountpoint, params, name);
		}
	}
}

static void decision_write_cell(struct table *table, const json_t *decision, const char *field)
{
	table_cell(table, COLOUR_NONE, "%s", json_string_value(json_object_get(decision, field)));
}

void doctor_decisions_write(const json_t *decisions)
{
	static const struct table_column columns[] = {{"DECIDED", 0}, {"AS", 0}, {"WHY", 0}};
	const json_t *decision;
	size_t i;

	if (!json_array_size(decisions))
		return;
	struct table table = TABLE(columns);

	json_array_foreach (decisions, i, decision) {
		decision_write_cell(&table, decision, "name");
		decision_write_cell(&table, decision, "value");
		decision_write_cell(&table, decision, "why");
	}
	table_write(&table, stdout);
	table_free(&table);
}
