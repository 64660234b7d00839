/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The connection to a daemon, which carries the leases of all files of a process and a mount. The
 * first file opens the connection; after a fork, or when the daemon has ended, the next file opens
 * a new connection. Thread-safe. */
#ifndef CLIENT_CORE_CONNECTION_H
#define CLIENT_CORE_CONNECTION_H

#include <sys/types.h>

#include "client/core/answer.h"

struct client_connection;

/* Memory of this process for a file: descriptors, which stay the caller's, and sizes. */
struct client_adoption {
	const int *fds;
	const size_t *sizes; /* multiples of CLIENT_CHUNK_ALIGN */
	uint32_t n_pieces;
	uint64_t skip, size; /* of gpumem_adopt_ask */
	uint32_t flags;	     /* enum gpumem_adopt_flags */
	const uint8_t *uuid; /* of the memory's GPU; NULL: unknown */
};

/* Takes a lease for an open file with the rights of flags (client_mount_lease). adopted: memory
 * that the empty file gets first, with O_RDWR; or NULL. The layout must be empty. 0 with a
 * reference to the connection, or -errno. */
int client_connection_lease(int fd, int flags, const struct client_adoption *adopted,
			    struct client_connection **connection, struct client_layout *layout);

/* Adds the chunks that the file has gained. -ENOTCONN: the connection and the lease have ended. */
int client_connection_extend(struct client_connection *connection, struct client_layout *layout);

/* Copies bytes of the leased file, from the offset at on, into the file fd at offset
 * (GPUMEM_IOC_COPY). Gives the number of bytes, or -errno without a text. */
ssize_t client_connection_copy(const struct client_connection *connection, uint64_t lease,
			       uint64_t at, int fd, uint64_t offset, uint64_t bytes);

/* Ends the lease and drops the reference. NULL: no connection. */
void client_connection_release(struct client_connection *connection, uint64_t lease);

/* Drops the reference only, because the lease belongs to another process. */
void client_connection_put(struct client_connection *connection);

#endif
