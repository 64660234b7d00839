/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem broadcast: executes the Python module gpumem.broadcast. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/program.h"
#include "common/cleanup.h"

#define PYTHON "python3"

/* In a checkout and in a bundle. Python finds an installed module, which finds its library. */
static const char *const module_places[] = {"../client/python", "../../client/python", NULL};
static const char *const library_places[] = {"libgpumem.so.0", "../libgpumem.so.0", NULL};

/* A folder that happens to have the name is a module without an origin. */
static const char module_check[] =
    "import importlib.util, sys; module = importlib.util.find_spec('gpumem'); "
    "sys.exit(0 if module and module.origin else 3)";
#define MODULE_ABSENT 3

static int environment_set(const char *folder)
{
	AUTO_FREE char *module = program_search(folder, module_places, "");
	AUTO_FREE char *library = program_search(folder, library_places, "");
	int error = module ? environment_prepend("PYTHONPATH", ":", module) : 0;

	if (error)
		return cli_fail("PYTHONPATH", -error);
	if (module && library && setenv("GPUMEM_LIBRARY", library, 0))
		return cli_fail("GPUMEM_LIBRARY", errno);
	/* The working directory may be one where all users can create files, as that of a GPU:
	 * Python is to load no module from there. */
	return setenv("PYTHONSAFEPATH", "1", 0) ? cli_fail("PYTHONSAFEPATH", errno) : CLI_OK;
}

/* Starts Python with the program, without messages: its wait status, or -errno. */
static int python_execute(const char *program)
{
	char *const arguments[] = {(char *)PYTHON, (char *)"-c", (char *)program, NULL};
	posix_spawn_file_actions_t actions;
	pid_t child;
	int status, error = posix_spawn_file_actions_init(&actions);

	if (error)
		return -error;
	error = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	if (!error)
		error = posix_spawnp(&child, PYTHON, &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (error)
		return -error;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status;
}

/* Any other failure shows again when the module is executed. */
static int module_find(void)
{
	int status = python_execute(module_check);

	if (status == -ENOENT)
		cli_error("there is no " PYTHON " in PATH: install Python, and the module gpumem "
			  "(package python3-gpumem, or make wheel)");
	else if (status < 0)
		return cli_fail(PYTHON, -status);
	else if (WIFEXITED(status) && WEXITSTATUS(status) == MODULE_ABSENT)
		cli_error(PYTHON " does not find the module gpumem: install the package "
				 "python3-gpumem, or the wheel (make wheel)");
	else
		return CLI_OK;
	return CLI_FAILED;
}

/* "python3", "-m", "gpumem.broadcast" in place of the command's name. */
static int module_execute(const struct cli_args *args)
{
	AUTO_FREE char **arguments = calloc((size_t)args->argc + 3, sizeof(*arguments));

	if (!arguments)
		return cli_fail(PYTHON, ENOMEM);
	arguments[0] = (char *)PYTHON;
	arguments[1] = (char *)"-m";
	arguments[2] = (char *)"gpumem.broadcast";
	for (int i = 1; i < args->argc; i++)
		arguments[i + 2] = args->argv[i];
	execvp(PYTHON, arguments);
	return cli_fail(PYTHON, errno);
}

static int broadcast_run(struct cli_args *args)
{
	char folder[PATH_MAX];
	int error = program_folder(folder);
	int status = error ? cli_fail("/proc/self/exe", -error) : environment_set(folder);

	if (!status)
		status = module_find();
	return status ? status : module_execute(args);
}

const struct command command_broadcast = {
    .name = "broadcast",
    .words = "[ARGS...]",
    .summary = "Copy files to other nodes, started by mpirun or torchrun",
    .help = "ARGS and --help go to python3 -m gpumem.broadcast: mpirun -n N gpumem broadcast PATH.",
    .max_words = -1,
    .run = broadcast_run,
};
