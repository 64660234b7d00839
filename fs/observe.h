/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Who watches the requests: readers of .gpumem/accesslog, and a sample of latencies. While nobody
 * does, a request costs one relaxed load. */
#ifndef FS_OBSERVE_H
#define FS_OBSERVE_H

#include <stdint.h>
#include <time.h>

struct op;

/* Bits of fs->observers; the last is each request's own. */
enum { OBSERVE_ACCESS = 1, OBSERVE_LATENCY = 2 };

static inline int64_t observe_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Before the reply: afterwards the kernel may forget what the request was about. Under no lock. */
void observe(struct op *op, int64_t result);

#endif
