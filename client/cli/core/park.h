/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Asks the library in other processes to park files, or to map them again. */
#ifndef CLIENT_CLI_CORE_PARK_H
#define CLIENT_CLI_CORE_PARK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/protocol.h"

enum park_timing {
	PARK_AT_SAFE_POINT, /* the process's next gpumem_safe_point */
	PARK_NOW,	    /* at once: nothing in the process may use the files */
};

struct park_request {
	enum gpumem_notice notice; /* GPUMEM_NOTICE_PARK, GPUMEM_NOTICE_UNPARK */
	enum park_timing timing;
	pid_t pid;	/* as the daemon numbers processes; 0: each process of this user */
	double seconds; /* to wait for answers */
};

/* The value of an option --timeout into *seconds: 0, or the exit status after a message. */
#define PARK_SECONDS 10 /* without the option */
struct cli_args;
int park_timeout_read(const struct cli_args *args, uint64_t *seconds);

struct park_answer {
	pid_t pid;
	enum gpumem_notified_state state; /* WAITS: no answer in time */
	int error;			  /* errno of the first file that failed, or 0 */
	uint32_t files;			  /* that are parked, or mapped again */
};

struct park_answers {
	struct park_answer *at;
	size_t count;
};

/* Asks about a file, or for a directory about all files of its mount, and waits for the answers. 0;
 * -ESRCH: no such process of this user takes requests; or another -errno. */
int park_ask(const char *path, const struct park_request *request, struct park_answers *answers);
void park_answers_free(struct park_answers *answers);
#define AUTO_ANSWERS __attribute__((cleanup(park_answers_free)))

#endif
