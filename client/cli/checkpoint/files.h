/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The files that another process has mapped, on all mounts. The functions give an exit status; an
 * error was reported. */
#ifndef CLIENT_CLI_CHECKPOINT_FILES_H
#define CLIENT_CLI_CHECKPOINT_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/cli/core/mounts.h"
#include "client/cli/core/park.h"

/* Whether the process is a daemon of gpumemfs, by its name. */
bool process_is_daemon(pid_t pid);

struct files {
	pid_t pid;
	struct mounts mounts; /* whose leases can be read, one of each file system */
	const char *reading;  /* the mount whose leases are being read */
	char *leased;	      /* a file of a GPU of which the process has a lease */
};

/* Finds the mounts, before any call of a driver: drivers start threads, and mounts_answers forks.
 */
int files_find(pid_t pid, struct files *files);
void files_free(struct files *files);

/* Asks the process to park its files, unless no file is mapped, and waits. Fails also if the
 * process has a file open whose leases cannot be read. After an error the request is withdrawn. */
int files_park(struct files *files, enum park_timing timing, unsigned seconds);
/* Fails if the process has a lease on memory of a GPU. */
int files_check(struct files *files);
/* Has the process map again the files that were parked on request; *count is their number. */
int files_unpark(const struct files *files, uint32_t *count);

#endif
