/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem bench: finds the bench program and executes it. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/program.h"

/* Places of the bench program beside this program's folder: installed, in a bundle, and in the
 * build folder. */
static const char *const bench_places[] = {"../lib/gpumemfs/bench", "../bench/bench",
					   "bench/bench"};

#define ABSENT "not built here (in the source tree: make bench-programs), and not installed"

/* Shown without a bench program; the help of the bench program says more. */
static bool args_ask_for_help(const struct cli_args *args)
{
	return args->argc == 2 &&
	       (strcmp(args->argv[1], "--help") == 0 || strcmp(args->argv[1], "-h") == 0);
}

static int bench_run(struct cli_args *args)
{
	char folder[PATH_MAX], path[2 * PATH_MAX];
	const char *set = getenv("GPUMEM_BENCH");
	int error = program_folder(folder);

	if (error)
		return cli_fail("/proc/self/exe", -error);
	/* All arguments go to the bench program. */
	args->argv[0] = (char *)"gpumem-bench";
	if (set)
		execv(set, args->argv);
	for (unsigned i = 0; !set && i < sizeof(bench_places) / sizeof(bench_places[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, bench_places[i]);
		if (access(path, X_OK) < 0)
			continue;
		execv(path, args->argv);
		return cli_fail(path, errno);
	}
	if (set)
		return cli_fail(set, errno);
	if (args_ask_for_help(args)) {
		command_help_write(stdout, args->command);
		puts("\nThe bench program itself is " ABSENT ".");
		return CLI_OK;
	}
	cli_error("the bench program is " ABSENT " (%s/%s)", folder, bench_places[0]);
	return CLI_FAILED;
}

const struct command command_bench = {
    .name = "bench",
    .words = "[ARGS...]",
    .summary = "Measure the mount against its floor and its ceilings",
    .help = "ARGS and --help go to the bench program, which prints the ceilings first.",
    .max_words = -1,
    .run = bench_run,
};
