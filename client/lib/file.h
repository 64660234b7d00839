/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* An open file of the library: its lease and its mappings. */
#ifndef CLIENT_LIB_FILE_H
#define CLIENT_LIB_FILE_H

#include <pthread.h>
#include <stdbool.h>

#include "client/core/connection.h"
#include "client/gpu/gpu.h"
#include "client/lib/end.h"
#include "client/lib/gpumem.h"
#include "client/lib/replace.h"

/* What a write changes. */
struct client_stamp {
	uint64_t size;
	int64_t seconds;
	uint32_t ns;
};

/* The device number of the file's mount, and the inode's number: 0 after an error. */
struct client_identity {
	dev_t device;
	ino_t inode;
};

struct gpumem {
	/* Under the list's lock: the list of all files, and threads in client_files_each that use
	 * the file. */
	struct gpumem *previous, *next;
	unsigned visits;
	pthread_mutex_t lock; /* of all members below */
	int fd;
	enum client_fd {
		CLIENT_FD_OPEN, /* an open file */
		CLIENT_FD_PATH /* O_PATH: closing such a descriptor leaves the process's locks alone
				*/
	} fd_kind;
	struct client_identity identity;      /* never changes */
	int flags;			      /* O_RDONLY or O_RDWR, and CLIENT_LEASE_FLAGS */
	struct client_connection *connection; /* NULL: the lease is the parent's */
	struct client_layout layout;
	struct client_device_map device;
	struct client_host_map host;
	struct client_replace *pending; /* until the file has its name; NULL: has a name */
	bool parked;			/* park.h: no lease, no mappings, but the addresses */
	bool on_request;		/* parked, by a notice */
	bool exported;			/* the program has descriptors of the memory */
	struct client_end end;		/* end.h */
	struct client_stamp stamp;	/* of the file when it was parked */
	uint64_t size_min; /* bytes that the file must still have after parking: an arena's */
};

/* 0 for regular files: an ioctl may have effects on others. */
int client_file_check(int fd);
/* gpumem_open, but for the notices. 0 or -errno. */
int client_file_open(const char *path, int flags, struct gpumem **file);
/* Makes a file with a lease. The file owns fd, and a failed call closes fd. 0 or -errno. */
int client_file_new(int fd, enum client_fd kind, int flags, int lease_from, struct gpumem **file);
/* As client_file_new for an empty file that is open for reading and writing, and gets this memory
 * first. */
int client_file_new_adopted(int fd, const struct client_adoption *from, struct gpumem **file);
/* Gives 0, or the first -errno of the calls that free a resource. */
int client_file_free(struct gpumem *file);

/* Whether the name is the file's, and not a link's. */
bool client_file_has_name(const struct gpumem *file, const char *path);

/* Calls visit for every file of the process, under the file's lock. visit must not close files. */
void client_files_each(void (*visit)(struct gpumem *file, void *context), void *context);

/* Under the file's lock: takes a new lease if the lease is the parent's. */
int client_file_renew(struct gpumem *file);

/* gpumem_extend, under the file's lock. */
int client_file_extend(struct gpumem *file);

/* Under the file's lock: 0 or -errno. */
int client_file_unmap_device(struct gpumem *file);

/* Whether the process holds memory of a GPU that is the file's own: such a file can be parked. */
static inline bool client_file_holds_gpu(const struct gpumem *file)
{
	return file->connection && file->layout.kind != GPUMEM_KIND_HOST &&
	       !(file->layout.flags & GPUMEM_LAYOUT_PRIVATE);
}

/* The functions for the file's memory. */
static inline const struct client_gpu_ops *client_file_ops(const struct gpumem *file)
{
	return client_gpu_ops(file->layout.kind);
}

#endif
