/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of subcommands, with the help of all commands and the shells' completion. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/cli.h"
#include "common/text/closest.h"

const struct command *const commands[] = {
    &command_status,
    &command_top,
    &command_cp,
    &command_ls,
    &command_get,
    &command_set,
    &command_map,
    &command_sharers,
    &command_explain,
    &command_users,
    &command_fetch,
    &command_evict,
    &command_park,
    &command_unpark,
    &command_drop,
    &command_save,
    &command_publish,
    &command_versions,
    &command_rollback,
    &command_align,
    &command_verify,
    &command_bench,
    &command_doctor,
    &command_mount,
    &command_umount,
    &command_run,
    &command_broadcast,
    &command_checkpoint,
    NULL,
};

const struct command *command_find(const char *name)
{
	for (unsigned i = 0; commands[i]; i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

/* Ordinary programs that users expect as commands, because cp and ls are commands. */
static bool is_ordinary_program(const char *name)
{
	static const char *const programs[] = {"mv", "rm", "du", NULL};

	for (unsigned i = 0; programs[i]; i++)
		if (strcmp(programs[i], name) == 0)
			return true;
	return false;
}

void command_unknown(const char *name)
{
	struct closest closest = {.word = name};

	if (is_ordinary_program(name)) {
		cli_error("%s: use %s(1): files of a mount are files", name, name);
		return;
	}
	for (unsigned i = 0; commands[i]; i++)
		closest_try(&closest, commands[i]->name);
	closest_try(&closest, "help");
	if (closest.name)
		cli_error("unknown command %s: did you mean %s? (gpumem help)", name, closest.name);
	else
		cli_error("unknown command %s (gpumem help)", name);
}

static void summary_write(FILE *out, const char *name, const char *summary)
{
	fprintf(out, "  %-11s %s\n", name, summary);
}

void commands_help_write(FILE *out)
{
	fputs("usage: gpumem COMMAND [OPTIONS] [ARGS]\n\n"
	      "Manages files in GPU memory. See gpumem(1) for details.\n\n",
	      out);
	for (unsigned i = 0; commands[i]; i++)
		summary_write(out, commands[i]->name, commands[i]->summary);
	summary_write(out, "help", "Show how to use a command: gpumem help COMMAND");
	fputs("\n  -h, --help      print this\n  -V, --version   print the version\n", out);
}

static void complete_command(const char *start)
{
	for (unsigned i = 0; commands[i]; i++)
		cli_offer(start, commands[i]->name, commands[i]->summary);
	cli_offer(start, "help", "Show how to use a command");
	cli_offer(start, "--help", "print this");
	cli_offer(start, "--version", "print the version");
}

static void complete_option(const struct command *command, const char *start)
{
	char word[64];

	for (const struct cli_option *option = command->options; option && option->name; option++) {
		snprintf(word, sizeof(word), "--%s%s", option->name, option->value ? "=" : "");
		cli_offer(start, word, option->help);
	}
	cli_offer(start, "--help", "print this");
}

/* Whether the last word belongs to the command that this command executes. */
static bool word_is_inner(const struct command *command, int count, char **words)
{
	for (int i = 1; command->is_prefix && i < count - 1; i++)
		if (*words[i] != '-' || strcmp(words[i], "--") == 0)
			return true;
	return false;
}

/* No line is printed for a path: shells complete paths themselves. */
int complete(int count, char **words)
{
	const char *last = count ? words[count - 1] : "";
	const struct command *command = count > 1 ? command_find(words[0]) : NULL;

	if (count < 2 || (count == 2 && strcmp(words[0], "help") == 0))
		complete_command(last);
	else if (command && *last == '-' && !word_is_inner(command, count, words))
		complete_option(command, last);
	else if (command && command->offer)
		command->offer(count - 2, words + 1, last);
	return CLI_OK;
}
