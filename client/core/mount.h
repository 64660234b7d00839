/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Finds the daemon of an open file's mount, and asks the daemon for leases. */
#ifndef CLIENT_CORE_MOUNT_H
#define CLIENT_CORE_MOUNT_H

#include <stdbool.h>

#include "common/protocol.h"

/* A bit of flags, the same as GPUMEM_OPEN_TIMED of gpumem.h: GPUMEM_IOC_LEASE_TIMED, or
 * GPUMEM_IOC_LEASE where the daemon is older. */
#define CLIENT_LEASE_TIMED (1 << 30)
/* Another bit: GPUMEM_IOC_LEASE_LOADS, or the next older kind that the daemon knows. */
#define CLIENT_LEASE_LOADS (1 << 29)
#define CLIENT_LEASE_FLAGS (CLIENT_LEASE_TIMED | CLIENT_LEASE_LOADS)

/* Has the daemon send the file's lease over the connection in ask, with the rights of flags
 * (O_RDONLY, O_RDWR), by the descriptor or, if the descriptor is O_PATH or
 * has fewer rights, by the file opened again. 0; -ESTALE without a text, as
 * GPUMEM_IOC_LEASE says; or another -errno. */
int client_mount_lease(int fd, int flags, struct gpumem_lease_ask *ask);

/* GPUMEM_IOC_ADOPT on a file that is open for reading and writing: 0; -ESTALE without a text; or
 * another -errno. */
int client_mount_adopt(int fd, struct gpumem_adopt_ask *ask);

/* -ENOTSUP: the file is not on gpumemfs. -ENOTCONN: its daemon has ended. */
int client_mount_check(int fd);

/* Gives *flags, enum gpumem_mount_flags, of the file's mount. 0 or -errno. */
int client_mount_flags(int fd, uint32_t *flags);

/* Opens a new connection to the daemon of the file's mount. All mounts of the filesystem that this
 * process sees are tried, because a bind mount of a file has no socket. Gives the descriptor, or
 * -ENOTCONN, -ENOTSUP (also for a file that is not on gpumemfs). */
int client_mount_connect(int fd);

/* Which mounts of a filesystem: those of its root, or also bind mounts of other directories. */
enum client_mounts { CLIENT_MOUNTS_WHOLE, CLIENT_MOUNTS_ALL };

/* Calls visit with the root (O_PATH, lent) of every such mount of the file's filesystem that this
 * process sees, until visit gives 0 or more, and returns that number. Otherwise returns the first
 * result of visit, or -ENOENT. */
int client_mount_each(int fd, enum client_mounts selection, int (*visit)(int root, void *argument),
		      void *argument);

#endif
