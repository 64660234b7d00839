/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tells the service manager that requests are answered. The watchdog reads the workers' counters
 * instead of sending a request to the mount: in a stuck daemon the watchdog would wait for its own
 * process, and no signal could end the wait. */
#ifndef FS_DAEMON_WATCHDOG_H
#define FS_DAEMON_WATCHDOG_H

struct background;
struct fs;

/* Starts the watchdog if the service manager asks for a watchdog: 0, or -errno after a line in the
 * log. */
int watchdog_start(struct fs *fs, struct background *watchdog);

#endif
