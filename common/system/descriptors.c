/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/system/descriptors.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

/* Enough for two threads that each send twice the most chunks of a packet, and for all other files.
 */
#define RESERVE_MAX   1024
#define RESERVE_SHARE 4

uint64_t descriptors_limit(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) ? 0 : limit.rlim_cur;
}

uint64_t descriptors_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	return descriptors_limit();
}

uint64_t descriptors_for(enum descriptor_use use, uint64_t limit)
{
	uint64_t reserve = limit / RESERVE_SHARE;

	if (reserve > RESERVE_MAX)
		reserve = RESERVE_MAX;
	return limit - (use == DESCRIPTOR_MEMORY       ? reserve
			: use == DESCRIPTOR_CONNECTION ? reserve / 2
						       : 0);
}

int descriptor_unreserved(enum descriptor_use use, int fd)
{
	if (fd < 0 || (uint64_t)fd < descriptors_for(use, descriptors_limit()))
		return fd;
	close(fd);
	errno = EMFILE;
	return -1;
}
