/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A call of mmap, and whether the kernel is to serve it. */
#ifndef CLIENT_PRELOAD_REQUEST_H
#define CLIENT_PRELOAD_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "client/preload/stats.h"

struct mapping_request {
	char *address;
	size_t bytes;
	int protection, flags, fd;
	off_t offset;
};

/* False: what the kernel alone can do, or has to refuse. mode: of the descriptor, by F_GETFL. */
bool request_can_be_direct(const struct mapping_request *request, int mode, enum stats_left *why);

/* Whether the kernel's mapping is as good and costs less. The kernel drops the pages that it has of
 * a file without a page cache when it makes a private mapping, so that the mapping shows all stores
 * before that. Stores that come later a private mapping need not show. */
bool request_is_small(const struct mapping_request *request);

#endif
