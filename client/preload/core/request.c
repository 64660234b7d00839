/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/core/request.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Flags that have no effect on memory that exists, or that place_reserve handles. */
#define KNOWN_FLAGS                                                                                \
	(MAP_SHARED | MAP_PRIVATE | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_NORESERVE |              \
	 MAP_POPULATE | MAP_DENYWRITE | MAP_EXECUTABLE)

/* A lease of a small file takes the daemon up to 2 ms, and the kernel's mapping 5 us: git maps
 * thousands of small files, each to be read once. */
#define PRIVATE_MIN (1UL << 20)

bool request_can_be_direct(const struct mapping_request *request, int mode, enum stats_left *reason)
{
	bool shared = request->flags & MAP_SHARED, writes = request->protection & PROT_WRITE;
	long page = sysconf(_SC_PAGESIZE);

	*reason = LEFT_KIND;
	if (request->flags & ~KNOWN_FLAGS || shared == !!(request->flags & MAP_PRIVATE) ||
	    request->protection & ~(PROT_READ | PROT_WRITE) || (!shared && writes))
		return false;
	if (request->bytes == 0 || request->bytes > SIZE_MAX / 2 || request->offset < 0 ||
	    request->offset % page)
		return false;
	*reason = LEFT_RIGHTS;
	return mode >= 0 && !(mode & O_PATH) && (mode & O_ACCMODE) != O_WRONLY &&
	       (!writes || (mode & O_ACCMODE) == O_RDWR);
}

bool request_is_small(const struct mapping_request *request)
{
	return request->flags & MAP_PRIVATE && request->bytes < PRIVATE_MIN;
}
