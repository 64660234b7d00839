/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Staging memory: an unnamed file of host/, mapped into this process, which the copy engines of
 * GPUs reach. copy_file_range(2) between the staging memory and a file is one request to the
 * daemon, and DMA without a copy by a CPU. A write(2) costs a copy by the kernel instead, at the
 * rate of one processor.
 *
 * Memory that was never written to is not allocated, and only the daemon's CPUs could read it. So
 * before the first use of a stretch of 64 MiB (less at the end), bytes must be stored all over the
 * stretch. If the mount has no room, read(2) into the memory gives EFAULT, and a store ends the
 * process. */
#ifndef CLIENT_LIB_STAGING_H
#define CLIENT_LIB_STAGING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/lib/gpumem.h"

struct client_staging {
	int fd; /* -1: no staging memory */
	/* The bytes of fd, read without a request to the daemon if they are one chunk. Borrowed. */
	int object;
	gpumem *file;
	char *base;
	size_t bytes;
};

#define CLIENT_STAGING_NONE ((struct client_staging){.fd = -1, .object = -1})

/* Opens staging memory on the mount of the file fd. Allocates no memory. -errno: the mount's host/
 * is not visible, or not open to this user, or the daemon cannot be reached. */
int client_staging_open(int fd, size_t bytes, struct client_staging *staging);
/* Stores zeros into a stretch; at is a multiple of the page size. 0, or -errno if there is no room.
 */
int client_staging_touch(const struct client_staging *staging, size_t at, size_t bytes);
void client_staging_close(struct client_staging *staging);

/* Copies bytes from the offset at of the staging memory to the file, and back. Gives the number of
 * bytes, fewer only at the end of the file or after an error; or -errno. */
ssize_t client_staging_put(const struct client_staging *staging, size_t at, int to, uint64_t offset,
			   size_t bytes);
ssize_t client_staging_get(const struct client_staging *staging, size_t at, int from,
			   uint64_t offset, size_t bytes);
/* Copies into a file that has memory at the offset already. Several threads may call at the same
 * time; in client_staging_put the kernel makes the threads wait for one another. If the daemon
 * cannot do this, the function calls the same copy as client_staging_put. */
ssize_t client_staging_place(const struct client_staging *staging, size_t at, int to,
			     uint64_t offset, size_t bytes);

#endif
