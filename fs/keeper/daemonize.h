/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Going into the background. The launching process waits for the mount, so that a shell gets exit
 * status 0 when the mount answers requests, or 1 when mounting has failed. To be used before
 * threads and CUDA, because neither survives a fork. */
#ifndef FS_KEEPER_DAEMONIZE_H
#define FS_KEEPER_DAEMONIZE_H

#include "common/log.h"

enum daemon_mode { DAEMON_BACKGROUND, DAEMON_FOREGROUND };

struct daemon {
	int ready_fd; /* -1: no launcher waits */
};

/* In the background, forks: the function returns in the child, with a session of its own and the
 * working directory /, still logging to the terminal; the launcher exits within the function. In
 * the foreground, stays. In both cases descriptors 0 to 2 are open afterwards. 0, or -errno after a
 * log line. */
int daemon_start(enum daemon_mode mode, struct daemon *daemon);

/* The mount answers requests: lets the launcher exit, leaves the terminal and logs to syslog from
 * now on. In the foreground has no effect. 0; -EPIPE: the launcher is gone; the mount goes on. */
int daemon_ready(struct daemon *daemon, enum log_level level);

/* Leaves the terminal and logs to syslog from now on, for a daemon without a launcher. */
void daemon_leave(enum log_level level);

/* A daemon that fails need only exit: the launcher sees the end of the pipe. */

#endif
