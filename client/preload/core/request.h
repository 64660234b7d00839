/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A call of mmap, and the decision whether the kernel serves the call. */
#ifndef CLIENT_PRELOAD_CORE_REQUEST_H
#define CLIENT_PRELOAD_CORE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "client/preload/core/stats.h"

struct mapping_request {
	char *address;
	size_t bytes;
	int protection, flags, fd;
	off_t offset;
};

/* False: only the kernel can make or refuse the mapping. mode: of the descriptor, by F_GETFL. */
bool request_can_be_direct(const struct mapping_request *request, int mode,
			   enum stats_left *reason);

/* Whether the kernel's mapping is as good and costs less. When the kernel makes a private mapping
 * of a file without a page cache, the kernel drops its pages of the file, so the mapping shows all
 * earlier stores. A private mapping need not show later stores. */
bool request_is_small(const struct mapping_request *request);

#endif
