/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The common parts of all subcommands of gpumem: the struct of a command, options, help, messages
 * and exit statuses. */
#ifndef CLIENT_CLI_CORE_CLI_H
#define CLIENT_CLI_CORE_CLI_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

/* The largest file size that is accepted: a lying mount could name any size, and tables of the
 * file's parts would take gigabytes. No machine has so much GPU memory. */
#define CLI_FILE_MAX ((uint64_t)16 << 40)

/* Exit statuses; gpumem(1) lists them. */
enum cli_status {
	CLI_OK = 0,
	CLI_WRONG = 1,	     /* doctor or verify found an error */
	CLI_USAGE = 2,	     /* the command line is wrong */
	CLI_NOT_MOUNTED = 3, /* no mount, or a path that is not on one */
	CLI_DEAD = 4,	     /* the daemon of a mount has ended */
	CLI_DENIED = 5,	     /* no permission */
	CLI_FULL = 6,	     /* no room: the GPU, the disk or a quota */
	CLI_FAILED = 7,	     /* any other error of the system */
};

/* The error of a file or directory that another process has replaced meanwhile. */
#define CLI_REPLACED EREMCHG

/* An option of a subcommand. */
struct cli_option {
	int code; /* a letter, or a number from CLI_LONG on for an option without a letter */
	const char *name;  /* without the dashes */
	const char *value; /* the name of the value; NULL: the option has no value */
	const char *help;
};

#define CLI_LONG 256

#define CLI_JSON                                                                                   \
	{                                                                                          \
		CLI_LONG + 1, "json", NULL, "print JSON"                                           \
	}
#define CLI_JSON_CODE (CLI_LONG + 1)

/* The state of parsing a command line. */
struct cli_args {
	const struct command *command;
	int argc; /* after the options: the number of arguments */
	char **argv;
	const char *value; /* of the option that cli_option gave */
};

struct command {
	const char *name;
	const char *words;		  /* "SRC... DST" */
	const char *summary;		  /* one line */
	const char *help;		  /* after the usage and the summary; NULL: none */
	const struct cli_option *options; /* ended by an entry without a name; NULL: none */
	int min_words, max_words;	  /* max < 0: any number */
	/* The words are another command: options end at the first word. */
	bool is_prefix;
	int (*run)(struct cli_args *args); /* gives the exit status */
	/* Offers completions of the arguments with cli_offer; NULL: only paths. */
	void (*offer)(int count, char **words, const char *start);
};

/* All subcommands, in the order of the help, ended by NULL. */
extern const struct command *const commands[];

extern const struct command command_status, command_top, command_cp, command_ls, command_get,
    command_set, command_map, command_sharers, command_save, command_drop, command_align,
    command_verify, command_bench, command_doctor, command_run, command_fetch, command_evict,
    command_park, command_unpark, command_checkpoint, command_users, command_mount, command_umount,
    command_broadcast, command_explain, command_publish, command_rollback, command_versions;

/* Finds a subcommand; NULL: there is no such subcommand. */
const struct command *command_find(const char *name);
/* Reports that there is no subcommand of this name, and suggests a similar name, or the ordinary
 * program of the name. */
void command_unknown(const char *name);
/* The help of all commands. */
void commands_help_write(FILE *out);

/* The help of a command. */
void command_help_write(FILE *out, const struct command *command);

/* The code of the next option. 0: no more options, argc and argv have the arguments. -1: an error,
 * which was reported. --help prints the help and ends the program. */
int cli_option(struct cli_args *args);
/* Parses the options of a command that has --json alone: 0 with *json, or -1. */
int cli_only_json(struct cli_args *args, int *json);

/* The terminal shows a line without its end, which the next message replaces. */
extern atomic_bool cli_line_open;
/* Writes "gpumem cp: ..." to stderr. Any thread may call this. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Reports the error of the path in plain words, and gives the exit status. */
int cli_fail(const char *path, int error);
/* The exit status of an errno. */
enum cli_status cli_status_of(int error);
/* The meaning of an errno for a user of GPU memory as files. */
const char *cli_words(int error);
/* Reports a wrong argument and the command's usage. Gives CLI_USAGE. */
int cli_usage(const struct command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A monotonic clock. */
double cli_seconds(void);

/* For the shells' completion: prints a line "word<TAB>help" for each word that may replace the last
 * of the words. */
int complete(int count, char **words);
/* Prints such a line if the word begins with start. */
void cli_offer(const char *start, const char *word, const char *help);

#endif
