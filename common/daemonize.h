/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Into the background, with the launcher waiting for the mount: who starts gpumemfs gets its shell
 * back when the mount answers (exit status 0) or has failed (1). Before threads and before CUDA,
 * which does not survive a fork. */
#ifndef COMMON_DAEMONIZE_H
#define COMMON_DAEMONIZE_H

#include "common/log.h"

enum daemon_mode { DAEMON_BACKGROUND, DAEMON_FOREGROUND };

struct daemon {
	int ready_fd; /* -1: nobody waits */
};

/* In the background returns in the child only, a session of its own in /, whose messages still go
 * to the terminal; the launcher exits from inside. In the foreground stays. In both, file
 * descriptors 0 to 2 are open afterwards. 0, or -errno after a log line. */
int daemon_start(enum daemon_mode mode, struct daemon *daemon);

/* The mount answers: lets the launcher go, leaves the terminal and logs to syslog from here on. In
 * the foreground does nothing. 0; -EPIPE when the launcher is gone: what it was told to wait for is
 * up all the same. */
int daemon_ready(struct daemon *daemon, enum log_level level);

/* Leaves the terminal and logs to syslog from here on, for a daemon that nobody waits for. */
void daemon_leave(enum log_level level);

/* A daemon that ends without daemon_ready need do nothing more than exit: the launcher sees it. */

#endif
