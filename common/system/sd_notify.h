/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Messages to a service manager: the protocol of sd_notify(3), a datagram to $NOTIFY_SOCKET,
 * without libsystemd. Without $NOTIFY_SOCKET the functions have no effect. */
#ifndef COMMON_SYSTEM_SD_NOTIFY_H
#define COMMON_SYSTEM_SD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#define NOTIFY_READY	"READY=1\n"
#define NOTIFY_STOPPING "STOPPING=1\n"
#define NOTIFY_WATCHDOG "WATCHDOG=1\n"
/* Ending takes longer than usual: wait half a minute more. */
#define NOTIFY_EXTEND "EXTEND_TIMEOUT_USEC=30000000\n"

/* 0, also without a service manager; -errno after a line in the log. */
int notify_send(const char *state);

/* With a file descriptor, still the caller's; -1: no descriptor. */
int notify_send_fd(const char *state, int fd);

/* The names of gpumemfs's descriptors in the service manager's store begin with this. */
#define NOTIFY_FD_PREFIX "gpumemfs-"

/* Whether the service manager started this process with stored descriptors of gpumemfs
 * (sd_listen_fds_with_names(3)). Reads the environment only. */
bool notify_has_fds(void);

/* How long the service manager waits for NOTIFY_WATCHDOG before killing this process; 0: for ever.
 */
uint64_t notify_watchdog_us(void);

#endif
