/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The service manager's store of file descriptors (sd_pid_notify_with_fds(3)). The store has a
 * second copy of every descriptor that the keeper holds, so that the mount survives when keeper and
 * daemon are killed together and systemd starts another keeper. */
#ifndef FS_KEEPER_SYSTEMD_FDSTORE_H
#define FS_KEEPER_SYSTEMD_FDSTORE_H

#include <stdint.h>

#include "fs/keeper/fd_table.h"

/* Moves the descriptors that the service manager gave to this process into held: 0, or -errno after
 * a line in the log. */
int store_take(struct fd_table *held);

/* Without a service manager these have no effect. The daemon adds each descriptor that its keeper
 * holds; the keeper removes them. */
void store_add(uint64_t id, int fd);
void store_remove(uint64_t id);
void store_remove_all(const struct fd_table *held);

#endif
