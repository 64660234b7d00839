/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/options/recovery.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/number.h"

/* A keeper holds a descriptor for each allocation: this number is enough for 32 GiB of the smallest
 * allocations. */
#define OPEN_FILES_MIN 16384

/* Whether recovery=auto must be off, and why, in reason. */
static bool recovery_is_barred(const struct recovery_facts *facts, const struct options *options,
			       char reason[RECOVERY_WHY_MAX])
{
	if (options->io_uring == SWITCH_ON)
		snprintf(reason, RECOVERY_WHY_MAX, "not with io_uring=on");
	else if (!facts->root)
		snprintf(reason, RECOVERY_WHY_MAX,
			 "not root's mount (recovery=transparent can be given)");
	else if (!version_at_least(facts->kernel, 6, 9))
		snprintf(reason, RECOVERY_WHY_MAX, "the kernel is older than Linux 6.9");
	else if (facts->open_files < OPEN_FILES_MIN)
		snprintf(reason, RECOVERY_WHY_MAX,
			 "a limit of %" PRIu64 " open files is too low (ulimit -Hn; %d will do)",
			 facts->open_files, OPEN_FILES_MIN);
	else
		return false;
	return true;
}

void recovery_decide_by(const struct recovery_facts *facts, struct options *options)
{
	/* The process that started this process has decided already: there is a keeper. */
	bool has_keeper = options->role == ROLE_DAEMON || options->role == ROLE_KEEPER;

	if (options->recovery != RECOVERY_AUTO)
		return;
	if (!has_keeper && recovery_is_barred(facts, options, options->recovery_why)) {
		options->recovery = RECOVERY_OFF;
		return;
	}
	options->recovery = RECOVERY_TRANSPARENT;
	snprintf(options->recovery_why, RECOVERY_WHY_MAX, "recovery=auto");
}

void recovery_decide(struct options *options)
{
	struct rlimit files = {0};
	struct utsname system = {0};

	uname(&system);
	getrlimit(RLIMIT_NOFILE, &files);
	struct recovery_facts facts = {
	    .root = geteuid() == 0,
	    .kernel = system.release,
	    .open_files = files.rlim_max,
	};

	recovery_decide_by(&facts, options);
}
