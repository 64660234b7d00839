/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Reads a daemon's facts about itself in .gpumem/, and about a file in attributes. */
#ifndef CLIENT_CLI_CORE_FACTS_H
#define CLIENT_CLI_CORE_FACTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads mountpoint/.gpumem/name into allocated text: 0 or -errno. */
int facts_text(const char *mountpoint, const char *name, char **text);
/* The first line of the file at root followed by path, allocated; NULL: there is none. */
char *facts_first_line(const char *root, const char *path);
/* Reads stats.json. NULL with errno; EPROTO: stats.json has another form. */
json_t *facts_stats(const char *mountpoint);
/* Reads users: the charges of each user. NULL with errno, as facts_stats. */
json_t *facts_users(const char *mountpoint);
/* A member of a volume or of stats.json; 0 if the daemon's version does not have the member. */
uint64_t facts_number(const json_t *object, const char *name);
/* The rest of the line "name ..." of params or version, allocated; NULL: no such line. */
char *facts_line(const char *text, const char *name);

/* A lease, as stats.json has it. */
struct sharer {
	uint64_t bytes;	    /* of the file */
	const char *access; /* "rw", "ro", "copy" or "own" */
	uid_t uid;
	pid_t pid;     /* in the daemon's namespace */
	int64_t start; /* seconds since the epoch */
	/* Within the file system; valid during the call. A file that the caller may not see has
	 * "inode N" in the place of a path. */
	const char *path;
	uint64_t inode;
};

/* Calls visit for every lease of a mount that the daemon shows to the caller: 0 or -errno. */
int facts_sharers(const char *mountpoint, void (*visit)(void *context, const struct sharer *sharer),
		  void *context);
/* Whether path is inside or below inside; both begin with "/". */
bool facts_is_below(const char *path, const char *inside);
/* The command line of a process with blanks between the words, or its name, allocated; "?" for a
 * process that has ended or is in another container. */
char *facts_command(pid_t pid);

/* The health of a volume of stats.json: "ok", "resetting" or "failed". */
const char *facts_health(const json_t *volume);
/* The text of the path's attribute user.gpumem.name, allocated: 0 or -errno. */
int facts_attribute(const char *path, const char *name, char **text);
/* The attribute as a number; 0 if the path does not have the attribute. */
uint64_t facts_attribute_number(const char *path, const char *name);

#endif
