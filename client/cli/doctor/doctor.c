/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem doctor: finds limits and errors of this machine, with remedies. */
#include "client/cli/doctor/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/output.h"
#include "common/cleanup.h"

static const char *const levels[] = {"good", "note", "limit", "error"};

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
	    json_pack("{s:s, s:o, s:o}", "level", levels[level], "about", output_json_text(about),
		      "finding", output_json_text(text ? text : ""));

	if (lift)
		json_object_set_new(finding, "lift", output_json_text(lift));
	json_array_append_new(doctor->findings, finding);
	if (level > doctor->worst)
		doctor->worst = level;
}

char *doctor_line(const struct doctor *doctor, const char *path)
{
	return facts_first_line(doctor->root, path);
}

bool doctor_exists(const struct doctor *doctor, const char *path)
{
	AUTO_FREE char *full = NULL;

	return asprintf(&full, "%s%s", doctor->root, path) >= 0 && access(full, F_OK) == 0;
}

static void finding_write(const json_t *finding)
{
	static const enum output_colour colours[] = {COLOUR_GOOD, COLOUR_DIM, COLOUR_WARN,
						     COLOUR_BAD};
	const char *level = json_string_value(json_object_get(finding, "level"));
	const char *lift = json_string_value(json_object_get(finding, "lift"));
	unsigned n = 0;

	while (strcmp(levels[n], level) != 0)
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
static int findings_report(const struct doctor *doctor, int json)
{
	json_t *all;

	if (json) {
		all = json_pack("{s:O, s:s}", "findings", doctor->findings, "worst",
				levels[doctor->worst]);
		if (doctor->decisions)
			json_object_set(all, "decisions", doctor->decisions);
		output_json(all);
	} else {
		doctor_decisions_write(doctor->decisions);
		findings_write(doctor);
	}
	return doctor->worst == DOCTOR_ERROR ? CLI_WRONG : CLI_OK;
}

static int doctor_examine(struct doctor *doctor, const struct mounts *mounts, const char *word,
			  int json)
{
	if (word) {
		doctor->named_mount = mounts_named(mounts, word);
		doctor->decisions = json_array();
	}
	if (word && !doctor->named_mount) {
		cli_error("%s is not on a mount of gpumemfs", word);
		return CLI_NOT_MOUNTED;
	}
	doctor->mounted = mounts->count;
	doctor_machine(doctor);
	doctor_mounts(doctor, mounts);
	return findings_report(doctor, json);
}

static int doctor_run(struct cli_args *args)
{
	struct mounts mounts;
	int json, status;

	if (cli_only_json(args, &json) < 0)
		return CLI_USAGE;
	int error = mounts_find(&mounts);

	if (error)
		return cli_fail("/proc/self/mountinfo", -error);
	struct doctor doctor = {.findings = json_array(), .root = ""};

	status = doctor_examine(&doctor, &mounts, args->argc ? args->argv[0] : NULL, json);
	mounts_free(&mounts);
	json_decref(doctor.findings);
	json_decref(doctor.decisions);
	return status;
}

static const struct cli_option options[] = {CLI_JSON, {0}};

const struct command command_doctor = {
    .name = "doctor",
    .words = "[MOUNT]",
    .summary = "Diagnose this machine and suggest fixes",
    .help =
	"The level of a finding is good, note, limit or error. After an error the exit status is\n"
	"1. With MOUNT: this mount alone, with the settings that its daemon chose and why.",
    .options = options,
    .max_words = 1,
    .run = doctor_run,
};
