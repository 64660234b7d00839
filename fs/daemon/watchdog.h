/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tells the service manager that requests are being answered, as long as they are. Looked at is
 * what the workers have done: to ask the mount would leave a daemon that is stuck waiting for
 * itself, in a way that no signal ends. */
#ifndef FS_DAEMON_WATCHDOG_H
#define FS_DAEMON_WATCHDOG_H

struct fs;
struct watchdog;

/* Starts where the service manager asks for it: 0 with *watchdog NULL where it does not; -errno
 * after a line in the log. */
int watchdog_start(struct fs *fs, struct watchdog **watchdog);
/* NULL is fine. */
void watchdog_stop(struct watchdog *watchdog);

#endif
