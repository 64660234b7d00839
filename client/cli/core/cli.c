/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Options, help and errors of all subcommands. */
#include "client/cli/core/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/quota.h"
#include "client/cli/output/output.h"
#include "common/clock.h"
#include "common/text/closest.h"

#define OPTIONS_MAX 16

/* The subcommand's name, for messages. */
static const char *command_name = "";

atomic_bool cli_line_open;

static void message_write(const char *format, va_list args)
{
	flockfile(stderr);
	fprintf(stderr, "%sgpumem%s%s: ", atomic_exchange(&cli_line_open, false) ? "\r\033[K" : "",
		*command_name ? " " : "", command_name);
	output_vtext(stderr, format, args);
	fputc('\n', stderr);
	funlockfile(stderr);
}

void cli_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	message_write(format, args);
	va_end(args);
}

int cli_usage(const struct command *command, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	message_write(format, args);
	va_end(args);
	fprintf(stderr, "usage: gpumem %s%s%s%s  (gpumem help %s)\n", command->name,
		command->options ? " [OPTIONS]" : "", *command->words ? " " : "", command->words,
		command->name);
	return CLI_USAGE;
}

enum cli_status cli_status_of(int error)
{
	switch (error) {
	case 0:
		return CLI_OK;
	case ENOTCONN:
	case ECONNABORTED:
	case ETIMEDOUT:
		return CLI_DEAD;
	case EACCES:
	case EPERM:
		return CLI_DENIED;
	case ENOSPC:
	case EDQUOT:
		return CLI_FULL;
	default:
		return CLI_FAILED;
	}
}

const char *cli_words(int error)
{
	switch (error) {
	case ENOTCONN:
	case ECONNABORTED:
		return "the daemon of this mount has ended (Transport endpoint is not connected): "
		       "unmount it (gpumem umount), and mount it again";
	case ETIMEDOUT:
		return "the daemon of this mount does not answer";
	case EACCES:
		return "no permission";
	case EPERM:
		return "not allowed";
	case ENOSPC:
		return "no room is left: the GPU is full, or size= or reserve= of the mount allow "
		       "no more";
	case EDQUOT:
		return "a quota of a directory above, or a limit of one user, allows no more";
	case EIO:
		return "the device reported an error: gpumem status shows its health";
	case CLI_REPLACED:
		return "another process has replaced it meanwhile";
	default:
		return strerror(error);
	}
}

int cli_fail(const char *path, int error)
{
	char text[QUOTA_TEXT_MAX];

	cli_error("%s: %s", path, error == EDQUOT ? quota_text(path, 0, text) : cli_words(error));
	return cli_status_of(error);
}

/* Builds the tables of getopt_long from the command's options. Every command has --help. */
static void options_build(const struct command *command, struct option *longs, char *shorts)
{
	size_t used = 0;

	if (command->is_prefix)
		*shorts++ = '+';
	*shorts++ = ':';
	*shorts++ = 'h';
	longs[used++] = (struct option){"help", no_argument, NULL, 'h'};
	for (const struct cli_option *option = command->options;
	     option && option->name && used < OPTIONS_MAX; option++) {
		longs[used++] =
		    (struct option){option->name, option->value ? required_argument : no_argument,
				    NULL, option->code};
		if (option->code >= CLI_LONG)
			continue;
		*shorts++ = (char)option->code;
		if (option->value)
			*shorts++ = ':';
	}
	longs[used] = (struct option){0};
	*shorts = '\0';
}

static void option_unknown(const struct command *command, const char *word)
{
	char name[64];
	struct closest closest = {.word = name};

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
	closest_try(&closest, "help");
	for (const struct cli_option *option = command->options; option && option->name; option++)
		closest_try(&closest, option->name);
	if (closest.name)
		cli_usage(command, "unknown option %s: did you mean --%s?", word, closest.name);
	else
		cli_usage(command, "unknown option %s", word);
}

static int option_fail(struct cli_args *args, int code)
{
	const char *word = args->argv[optind - 1];

	if (code == ':')
		cli_usage(args->command, "%s wants a value", word);
	else if (optopt && optopt < CLI_LONG && word[1] != '-')
		cli_usage(args->command, "unknown option -%c", optopt);
	else
		option_unknown(args->command, word);
	return -1;
}

static int words_check(struct cli_args *args)
{
	const struct command *command = args->command;

	if (args->argc < command->min_words) {
		cli_usage(command, "an argument is missing");
		return -1;
	}
	if (command->max_words >= 0 && args->argc > command->max_words) {
		cli_usage(command, "unexpected argument: %s", args->argv[command->max_words]);
		return -1;
	}
	return 0;
}

static void help_option_write(FILE *out, const struct cli_option *option)
{
	char label[64];

	snprintf(label, sizeof(label), "%c%c%s--%s%s%s", option->code < CLI_LONG ? '-' : ' ',
		 option->code < CLI_LONG ? option->code : ' ',
		 option->code < CLI_LONG ? ", " : "  ", option->name, option->value ? "=" : "",
		 option->value ? option->value : "");
	fprintf(out, "  %-28s %s\n", label, option->help);
}

void command_help_write(FILE *out, const struct command *command)
{
	static const struct cli_option help = {'h', "help", NULL, "print this"};

	fprintf(out, "usage: gpumem %s [OPTIONS]%s%s\n\n%s.\n", command->name,
		*command->words ? " " : "", command->words, command->summary);
	if (command->help)
		fprintf(out, "%s\n", command->help);
	fputc('\n', out);
	for (const struct cli_option *option = command->options; option && option->name; option++)
		help_option_write(out, option);
	help_option_write(out, &help);
}

int cli_option(struct cli_args *args)
{
	struct option longs[OPTIONS_MAX + 1];
	char shorts[2 * OPTIONS_MAX + 4];

	command_name = args->command->name;
	opterr = 0;
	options_build(args->command, longs, shorts);
	int code = getopt_long(args->argc, args->argv, shorts, longs, NULL);

	args->value = optarg;
	if (code == 'h') {
		command_help_write(stdout, args->command);
		exit(CLI_OK);
	}
	if (code == '?' || code == ':')
		return option_fail(args, code);
	if (code != -1)
		return code;
	args->argc -= optind;
	args->argv += optind;
	return words_check(args);
}

int cli_only_json(struct cli_args *args, int *json)
{
	int code;

	*json = 0;
	while ((code = cli_option(args)) == CLI_JSON_CODE)
		*json = 1;
	return code;
}

void cli_offer(const char *start, const char *word, const char *help)
{
	if (strncmp(word, start, strlen(start)) == 0)
		printf("%s\t%s\n", word, help);
}

double cli_seconds(void)
{
	return (double)clock_ns() / CLOCK_SECOND;
}
