/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem doctor: finds limits and errors of this machine, with remedies. */
#include "client/cli/doctor/doctor.h"

#include <errno.h>

#include "client/cli/core/cli.h"

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
	return doctor_findings_report(doctor, json);
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

static const struct cli_option doctor_options[] = {CLI_JSON, {0}};

const struct command command_doctor = {
    .name = "doctor",
    .words = "[MOUNT]",
    .summary = "Diagnose this machine and suggest fixes",
    .help =
	"The level of a finding is good, note, limit or error. After an error the exit status is\n"
	"1. With MOUNT: this mount alone, with the settings that its daemon chose and why.",
    .options = doctor_options,
    .max_words = 1,
    .run = doctor_run,
};
