/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem, the command: what its subcommands are, and what they have in common. */
#ifndef CLIENT_CLI_CORE_CLI_H
#define CLIENT_CLI_CORE_CLI_H

#include <stdatomic.h>
#include <stdio.h>

/* Exit statuses; gpumem(1) lists them. */
/* A file that is said to be larger is not believed: tables of its parts would take gigabytes. No
 * machine has so much memory of GPUs. */
#define CLI_FILE_MAX ((uint64_t)16 << 40)

enum cli_status {
	CLI_OK = 0,
	CLI_WRONG = 1,	     /* something is not as it should be: doctor, verify */
	CLI_USAGE = 2,	     /* the command line */
	CLI_NOT_MOUNTED = 3, /* no mount, or a path that is not on one */
	CLI_DEAD = 4,	     /* the daemon of a mount has ended */
	CLI_DENIED = 5,	     /* no permission */
	CLI_FULL = 6,	     /* no room: the GPU, the disk or a quota */
	CLI_FAILED = 7,	     /* anything else that the system refused */
};

/* One option of a subcommand. */
struct cli_option {
	int code;	   /* a letter, or from CLI_LONG on where there is none */
	const char *name;  /* without the dashes */
	const char *value; /* what stands behind it; NULL: nothing */
	const char *help;
};

#define CLI_LONG 256

#define CLI_JSON                                                                                   \
	{                                                                                          \
		CLI_LONG + 1, "json", NULL, "print JSON"                                           \
	}
#define CLI_JSON_CODE (CLI_LONG + 1)

/* A command line while it is taken apart. */
struct cli_args {
	const struct command *command;
	int argc; /* after the options: the words that are left */
	char **argv;
	const char *value; /* of the option that cli_option gave */
};

struct command {
	const char *name;
	const char *words;		   /* "SRC... DST" */
	const char *summary;		   /* one line */
	const char *more;		   /* the rest of its help; NULL: none */
	const struct cli_option *options;  /* up to one without a name; NULL: none */
	int min_words, max_words;	   /* max < 0: any number */
	int (*run)(struct cli_args *args); /* the exit status */
	/* Prints with cli_offer what may stand behind the words, besides paths; NULL: paths alone.
	 */
	void (*offer)(int count, char **words, const char *start);
};

/* All subcommands, up to NULL, in the order of the help. */
extern const struct command *const commands[];

extern const struct command command_status, command_top, command_cp, command_ls, command_get,
    command_set, command_map, command_sharers, command_save, command_drop, command_verify,
    command_bench, command_doctor;

/* NULL: there is no such subcommand. */
const struct command *command_find(const char *name);
/* Says that there is no subcommand of this name, and which is meant, probably. */
void command_unknown(const char *name);
/* The help of all commands. */
void commands_help_write(FILE *out);

/* The help of one command. */
void command_help_write(FILE *out, const struct command *command);
/* One row of two columns, of any help. */
void cli_help_row(FILE *out, const char *left, const char *right);

/* The code of the next option; 0: that was all, and argc and argv are the words; -1: wrong, and it
 * was said. --help prints and ends the program. */
int cli_option(struct cli_args *args);
/* For commands that have --json alone: 0, and *json; or -1. */
int cli_only_json(struct cli_args *args, int *json);

/* A line without its end is on the terminal: what is said next takes its place. */
extern atomic_bool cli_line_open;
/* "gpumem cp: ..." on stderr. From any thread. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Says in plain words what errno-like error means for the path; the exit status that it gives. */
int cli_fail(const char *path, int error);
/* The status of an error, without a word. */
enum cli_status cli_status_of(int error);
/* What an error means to those who have a GPU's memory as files. */
const char *cli_words(int error);
/* A word of the command line is wrong: says so, and how the command is used. CLI_USAGE. */
int cli_usage(const struct command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A clock that is never set. */
double cli_seconds(void);

/* Prints what may stand where the last of the words is, a line "word<TAB>help" each, for the
 * shells' completion. */
int complete(int count, char **words);
/* Such a line, where the word begins with start. */
void cli_offer(const char *start, const char *word, const char *help);

#endif
