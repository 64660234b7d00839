/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* One connection per process and mount, which carries the leases of all its files: made when first
 * needed, made anew after fork and when its daemon is gone. Thread-safe. */
#ifndef CLIENT_LIB_CONNECTION_H
#define CLIENT_LIB_CONNECTION_H

#include <sys/types.h>

#include "client/core/answer.h"

struct client_connection;

/* A lease for an opened file with the rights of flags (client_mount_token). Layout is empty. 0 with
 * a reference to the connection, or -errno. */
int client_connection_lease(int fd, int flags, struct client_connection **connection,
			    struct client_layout *layout);

/* Adds what the file grew by. -ENOTCONN: the connection is gone, and the lease with it. */
int client_connection_extend(struct client_connection *connection, struct client_layout *layout);

/* bytes of the leased file from the offset at on go into the file fd, at offset: GPUMEM_IOC_COPY.
 * How many, or -errno without a text. */
ssize_t client_connection_copy(const struct client_connection *connection, uint64_t lease,
			       uint64_t at, int fd, uint64_t offset, uint64_t bytes);

/* Ends the lease and drops the reference. NULL: none. */
void client_connection_release(struct client_connection *connection, uint64_t lease);

/* Drops the reference only: the lease is another process's. */
void client_connection_put(struct client_connection *connection);

#endif
