/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* CRIU, as a program: saves a process with its children in a directory, and starts them again. The
 * functions give an exit status; an error was reported. */
#ifndef CLIENT_CLI_CHECKPOINT_CRIU_H
#define CLIENT_CLI_CHECKPOINT_CRIU_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether CRIU is in PATH; the absence is reported. */
bool criu_is_there(void);
/* Stops the process, and ends its connections to daemons of gpumemfs: CRIU saves no connection to a
 * process that stays. The library connects again when it needs to. Saves the process, and ends the
 * process. After an error the process goes on. */
int criu_dump(pid_t pid, char *directory);
/* Starts the process, stopped, and writes the number of the process to a new file. */
int criu_restore(char *directory, char *pid_file);

#endif
