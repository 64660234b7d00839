/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory that a GPU's copy engines reach, as a step between this process and the mount's files: an
 * unnamed file of host/, mapped here. What lies in it goes into a file, or comes from one, by
 * copy_file_range(2), which is one request to the daemon and DMA with no copy by a CPU. A write(2)
 * costs a copy by the kernel's hand instead, at the rate of one processor.
 *
 * Memory that was never written to is no memory yet, and reached by the daemon's CPUs alone: into a
 * stretch of 64 MiB (less at the end) something is put, all over it, before its first use. Where
 * the mount has no room for it, read(2) into it is EFAULT, and a store ends the process. */
#ifndef CLIENT_LIB_STAGING_H
#define CLIENT_LIB_STAGING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/lib/gpumem.h"

struct client_staging {
	int fd; /* -1: there is none */
	/* The same bytes, read with no request to the daemon where it is one piece. Not ours. */
	int object;
	gpumem *file;
	char *base;
	size_t bytes;
};

#define CLIENT_STAGING_NONE ((struct client_staging){.fd = -1, .object = -1})

/* On the mount of the file that fd is. 0, or -errno: the mount's host/ is not in sight, or not for
 * this user, or the daemon cannot be reached. Takes no memory yet. */
int client_staging_open(int fd, size_t bytes, struct client_staging *staging);
/* Puts zeros there, at being a multiple of the page's size: 0, or -errno where there is no room. */
int client_staging_touch(const struct client_staging *staging, size_t at, size_t bytes);
void client_staging_close(struct client_staging *staging);

/* bytes from the place at of the staging memory to the file, and back: how many, fewer only at the
 * end of the file or where an error came after some, or -errno. */
ssize_t client_staging_put(const struct client_staging *staging, size_t at, int to, uint64_t offset,
			   size_t bytes);
ssize_t client_staging_get(const struct client_staging *staging, size_t at, int from,
			   uint64_t offset, size_t bytes);
/* Into a file that has the bytes' place already, and as many at a time as there are threads: no
 * one waits for another, as the kernel has them do in client_staging_put, which this is where there
 * is nothing else. */
ssize_t client_staging_place(const struct client_staging *staging, size_t at, int to,
			     uint64_t offset, size_t bytes);

#endif
