/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem doctor: collects the findings, and reports them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/output_json.h"
#include "client/cli/doctor/doctor.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"

static const char *const level_names[] = {"good", "note", "limit", "error"};

void doctor_find(struct doctor *doctor, enum doctor_level level, const char *about,
		 const char *lift, const char *format, ...)
{
	AUTO_FREE char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	json_t *finding =
	    json_pack("{s:s, s:o, s:o}", "level", level_names[level], "about",
		      output_json_text(about), "finding", output_json_text(text ? text : ""));

	if (lift)
		json_object_set_new(finding, "lift", output_json_text(lift));
	json_array_append_new(doctor->findings, finding);
	if (level > doctor->worst)
		doctor->worst = level;
}

static void finding_write(const json_t *finding)
{
	static const enum output_colour colours[] = {COLOUR_GOOD, COLOUR_DIM, COLOUR_WARN,
						     COLOUR_BAD};
	const char *level = json_string_value(json_object_get(finding, "level"));
	const char *lift = json_string_value(json_object_get(finding, "lift"));
	unsigned n = 0;

	while (strcmp(level_names[n], level) != 0)
		n++;
	printf("%s%-5s%s", output_colour(stdout, colours[n]), level,
	       output_colour(stdout, COLOUR_NONE));
	output_line(stdout, "  %s: %s", json_string_value(json_object_get(finding, "about")),
		    json_string_value(json_object_get(finding, "finding")));
	if (lift)
		output_line(stdout, "       -> %s", lift);
}

static void findings_write(const struct doctor *doctor)
{
	const json_t *finding;
	size_t i;

	json_array_foreach (doctor->findings, i, finding)
		finding_write(finding);
	puts(doctor->worst == DOCTOR_ERROR   ? "There are errors."
	     : doctor->worst == DOCTOR_LIMIT ? "Everything works, with the limits above."
					     : "No problems found.");
}

/* Writes the findings and gives the exit status. */
int doctor_findings_report(const struct doctor *doctor, int json)
{
	json_t *all;

	if (json) {
		all = json_pack("{s:O, s:s}", "findings", doctor->findings, "worst",
				level_names[doctor->worst]);
		if (doctor->decisions)
			json_object_set(all, "decisions", doctor->decisions);
		output_json(all);
	} else {
		doctor_decisions_write(doctor->decisions);
		findings_write(doctor);
	}
	return doctor->worst == DOCTOR_ERROR ? CLI_WRONG : CLI_OK;
}
