/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem mount: executes the daemon's program. */
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/program.h"
#include "common/cleanup.h"

static int mount_run(struct cli_args *args)
{
	static const char *const places[] = {"gpumemfs", NULL};
	char folder[PATH_MAX];
	int error = program_folder(folder);

	if (error)
		return cli_fail("/proc/self/exe", -error);
	AUTO_FREE char *program = program_search(folder, places, "");

	args->argv[0] = (char *)"gpumemfs";
	execvp(program ? program : "gpumemfs", args->argv);
	if (program || errno != ENOENT)
		return cli_fail(program ? program : "gpumemfs", errno);
	cli_error("gpumemfs is neither beside this program (%s) nor in PATH: install the package "
		  "gpumemfs (or make install)",
		  folder);
	return CLI_FAILED;
}

const struct command command_mount = {
    .name = "mount",
    .words = "[ARGS...]",
    .summary = "Mount the memory of GPUs as files",
    .help = "ARGS and --help go to gpumemfs(8): gpumem mount MOUNT -o OPTIONS.",
    .max_words = -1,
    .run = mount_run,
};
