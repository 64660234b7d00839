/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The service manager's store of file descriptors (sd_pid_notify_with_fds(3)): what is held is
 * there as well, so that the keeper, too, can be killed with everything else and go on when it is
 * started again. */
#ifndef FS_KEEPER_SYSTEMD_FDSTORE_H
#define FS_KEEPER_SYSTEMD_FDSTORE_H

#include <stdint.h>

#include "fs/keeper/fd_table.h"

/* Takes what was given over: 0, or -errno after a line in the log. */
int store_take(struct fd_table *held);

/* Where there is a service manager it is told; where there is none nothing is done. A daemon adds
 * what it has its keeper hold, which removes it. */
void store_add(uint64_t id, int fd);
void store_remove(uint64_t id);
void store_remove_all(const struct fd_table *held);

#endif
