/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <locale.h>
#include <string.h>

#include "client/cli/core/cli.h"

static int help_write(const char *name)
{
	const struct command *command = name ? command_find(name) : NULL;

	if (command)
		command_help_write(stdout, command);
	else if (!name || strcmp(name, "help") == 0)
		commands_help_write(stdout);
	else
		command_unknown(name);
	return command || !name || strcmp(name, "help") == 0 ? CLI_OK : CLI_USAGE;
}

/* Serves a word that stands in the place of a command; -1: the word is not such a word. */
static int word_serve(int argc, char **argv)
{
	const char *word = argv[1];

	if (strcmp(word, "help") == 0)
		return help_write(argc > 2 ? argv[2] : NULL);
	if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0)
		return help_write(NULL);
	if (strcmp(word, "--complete") == 0)
		return complete(argc - 2, argv + 2);
	if (strcmp(word, "-V") != 0 && strcmp(word, "--version") != 0)
		return -1;
	printf("gpumem %s\n", GPUMEM_VERSION);
	return CLI_OK;
}

/* A full disk behind stdout is an error. */
static int output_finish(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	cli_error("standard output cannot be written to");
	return status ? status : CLI_FAILED;
}

int main(int argc, char **argv)
{
	setlocale(LC_CTYPE, "");
	if (argc < 2) {
		commands_help_write(stderr);
		return CLI_USAGE;
	}
	int status = word_serve(argc, argv);

	if (status >= 0)
		return output_finish(status);
	const struct command *command = command_find(argv[1]);

	if (!command) {
		command_unknown(argv[1]);
		return CLI_USAGE;
	}
	struct cli_args args = {.command = command, .argc = argc - 1, .argv = argv + 1};

	return output_finish(command->run(&args));
}
