/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What a daemon says of itself in .gpumem/, and of a file in its attributes. */
#ifndef CLIENT_CLI_CORE_FACTS_H
#define CLIENT_CLI_CORE_FACTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The text of where/.gpumem/name, allocated: 0 or -errno. */
int facts_text(const char *where, const char *name, char **text);
/* stats.json; NULL with errno (EPROTO: it is not what it should be). */
json_t *facts_stats(const char *where);
/* A member of a volume or of all, 0 where it is not there: daemons of other versions know more or
 * less. */
uint64_t facts_number(const json_t *object, const char *name);
/* The rest of the line "name ..." of params or version, allocated; NULL: there is none. */
char *facts_line(const char *text, const char *name);

/* A lease, as stats.json has it. */
struct sharer {
	uint64_t bytes;	    /* of the file */
	const char *access; /* "rw", "ro", or "copy" */
	uid_t uid;
	pid_t pid;     /* as the daemon sees it */
	int64_t since; /* seconds since the epoch */
	/* Within the file system; valid during the call. Another user's file has no path, but
	 * "inode N". */
	const char *path;
	uint64_t inode;
};

/* The leases of a mount that the daemon shows to the caller; calls each with them in turn: 0 or
 * -errno. */
int facts_sharers(const char *where, void (*each)(void *context, const struct sharer *sharer),
		  void *context);
/* Whether path is inside itself or below it; both begin with "/". */
bool facts_is_below(const char *path, const char *inside);
/* The command line of a process, its blanks as they are, or its name; allocated; "?" for one that
 * is gone or of another container. */
char *facts_command(pid_t pid);

/* Of a volume of stats.json: "ok", "resetting" or "failed". */
const char *facts_health(const json_t *volume);
/* user.gpumem.name of the path as text, allocated: 0 or -errno. */
int facts_attribute(const char *path, const char *name, char **text);
/* The same for a number; 0 where there is none. */
uint64_t facts_attribute_number(const char *path, const char *name);

#endif
