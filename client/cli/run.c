/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem run: executes a command with the preload library, and with the hook for Python's
 * frameworks. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/caches.h"
#include "client/cli/core/cli.h"
#include "client/cli/program.h"
#include "common/cleanup.h"

/* Exit statuses of env(1) and of shells. */
#define NOT_EXECUTABLE 126
#define NOT_FOUND      127

enum { MODE_VIEW = CLI_LONG + 2, MODE_COPY, STATS, CACHES };

struct run_choice {
	const char *mode, *caches; /* or NULL */
	bool stats;
};

/* Debian's folder for libraries of this architecture. */
#if defined(__x86_64__)
#define DEBIAN_PLACE "../lib/x86_64-*/libgpumem-preload.so"
#elif defined(__aarch64__)
#define DEBIAN_PLACE "../lib/aarch64-*/libgpumem-preload.so"
#else
#define DEBIAN_PLACE "../lib/*-*/libgpumem-preload.so"
#endif

/* Places relative to the command's own folder, as patterns of glob(3), each ended by NULL: below a
 * prefix, in a wheel or a bundle, and in a build folder. */
static const char *const library_places[] = {
    "../lib/libgpumem-preload.so", "../lib64/libgpumem-preload.so", DEBIAN_PLACE,
    "../libgpumem-preload.so",	   "libgpumem-preload.so",	    NULL};
static const char *const hook_places[] = {
    "../lib/python3*/*-packages/gpumem/hook", "../lib64/python3*/*-packages/gpumem/hook", "../hook",
    "../client/python/gpumem/hook",	      "../../client/python/gpumem/hook",	  NULL};

/* The Python module finds an installed library by itself, but not the library of a bundle or of a
 * build folder, which is beside the preload library. */
static int library_set_python(const char *folder)
{
	static const char *const places[] = {"libgpumem.so.0", NULL};
	AUTO_FREE char *library = program_search(folder, places, "");

	if (library && setenv("GPUMEM_LIBRARY", library, 0))
		return cli_fail("GPUMEM_LIBRARY", errno);
	return CLI_OK;
}

/* The preload library serves every program, so that a command without the library would not be
 * what the user asked for. The dynamic linker separates names at blanks and colons. */
static int library_set(const char *folder)
{
	AUTO_FREE char *library = program_search(folder, library_places, "");

	if (!library) {
		cli_error("libgpumem-preload.so is neither beside this program (%s) nor below its "
			  "prefix: install it (make install, or the package libgpumem-preload)",
			  folder);
		return CLI_FAILED;
	}
	if (strpbrk(library, " :")) {
		cli_error("%s: LD_PRELOAD takes no path with a blank or a colon", library);
		return CLI_FAILED;
	}
	int error = environment_prepend("LD_PRELOAD", " :", library);

	return error ? cli_fail("LD_PRELOAD", -error) : library_set_python(dirname(library));
}

static int hook_set(const char *folder)
{
	AUTO_FREE char *start = program_search(folder, hook_places, "/sitecustomize.py");

	if (!start) {
		cli_error("the Python module gpumem is not installed beside this program: programs "
			  "in Python are served by the preload library alone");
		return CLI_OK;
	}
	int error = environment_prepend("PYTHONPATH", ":", dirname(start));

	return error ? cli_fail("PYTHONPATH", -error) : CLI_OK;
}

static int mode_set(const char *mode, bool stats)
{
	char text[32];

	snprintf(text, sizeof(text), "%s%s", mode, stats ? ",stats" : "");
	if (setenv("GPUMEM_RUN", text, 1) || (stats && setenv("GPUMEM_PRELOAD_STATS", "1", 1)))
		return cli_fail("GPUMEM_RUN", errno);
	return CLI_OK;
}

static int options_parse(struct cli_args *args, struct run_choice *choice)
{
	int code;

	*choice = (struct run_choice){0};
	while ((code = cli_option(args)) > 0) {
		const char *new_mode = code == MODE_VIEW ? "view" : "copy";

		if (code == STATS) {
			choice->stats = true;
		} else if (code == CACHES) {
			choice->caches = args->value;
		} else if (choice->mode && strcmp(choice->mode, new_mode) != 0) {
			cli_usage(args->command, "--view and --copy exclude each other");
			return -1;
		} else {
			choice->mode = new_mode;
		}
	}
	return code;
}

static int command_execute(char **words)
{
	execvp(*words, words);
	int error = errno;

	cli_error("%s: %s", *words, error == ENOENT ? "no such program" : strerror(error));
	return error == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
}

static int run_run(struct cli_args *args)
{
	char folder[PATH_MAX];
	struct run_choice choice;

	if (options_parse(args, &choice) < 0)
		return CLI_USAGE;
	int error = program_folder(folder);
	int status = error ? cli_fail("/proc/self/exe", -error) : library_set(folder);

	if (status == CLI_OK)
		status = hook_set(folder);
	if (status == CLI_OK)
		status = mode_set(choice.mode ? choice.mode : "auto", choice.stats);
	if (status == CLI_OK && choice.caches)
		status = caches_set(choice.caches);
	return status == CLI_OK ? command_execute(args->argv) : status;
}

static const struct cli_option run_options[] = {
    {CACHES, "caches", "DIR", "compiled code is kept in DIR for the next start"},
    {MODE_VIEW, "view", NULL, "tensors are the memory of their file"},
    {MODE_COPY, "copy", NULL, "tensors are copied by the GPU"},
    {STATS, "stats", NULL, "print for each process what was served how"},
    {0}};

const struct command command_run = {
    .name = "run",
    .words = "COMMAND [ARG...]",
    .summary = "Execute a command that uses the memory of files directly",
    .help =
	"The command and its children run with libgpumem-preload(7). In Python, safetensors and\n"
	"what is built on safetensors load files of a mount as gpumem.torch does: as views of\n"
	"files with user.gpumem.share=trusted, otherwise as copies by the GPU.",
    .options = run_options,
    .min_words = 1,
    .max_words = -1,
    .is_prefix = true,
    .run = run_run,
};
