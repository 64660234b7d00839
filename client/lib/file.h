/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* An open file of the library: its lease and its mappings. */
#ifndef CLIENT_LIB_FILE_H
#define CLIENT_LIB_FILE_H

#include <pthread.h>
#include <stdbool.h>

#include "client/gpu/gpu.h"
#include "client/lib/connection.h"
#include "client/lib/gpumem.h"
#include "client/lib/replace.h"

/* What a write changes. */
struct client_stamp {
	uint64_t size;
	int64_t seconds;
	uint32_t ns;
};

struct gpumem {
	struct gpumem *previous, *next; /* in the list of all files, for fork */
	pthread_mutex_t lock;		/* of all members below */
	int fd;
	enum client_fd {
		CLIENT_FD_OPEN, /* an open file */
		CLIENT_FD_PATH /* O_PATH: closing such a descriptor leaves the process's locks alone
				*/
	} fd_kind;
	int flags;			      /* O_RDONLY or O_RDWR */
	struct client_connection *connection; /* NULL: the lease is the parent's */
	struct client_layout layout;
	struct client_device_map device;
	struct client_host_map host;
	struct client_replace *pending; /* until the file has its name; NULL: has a name */
	bool parked;			/* park.h: no lease, no mappings, but the addresses */
	struct client_stamp stamp;	/* of the file when it was parked */
};

/* Makes a file with a lease. The file owns fd, and a failed call closes fd. 0 or -errno. */
int client_file_new(int fd, enum client_fd kind, int flags, int lease_from, struct gpumem **file);
/* Gives 0, or the first -errno of the calls that free a resource. */
int client_file_free(struct gpumem *file);

/* Under the file's lock: takes a new lease if the lease is the parent's. */
int client_file_renew(struct gpumem *file);

/* gpumem_extend, under the file's lock. */
int client_file_extend(struct gpumem *file);

/* Under the file's lock: 0 or -errno. */
int client_file_unmap_device(struct gpumem *file);

/* The functions for the file's memory. */
static inline const struct client_gpu_ops *client_file_ops(const struct gpumem *file)
{
	return client_gpu_ops(file->layout.kind);
}

#endif
