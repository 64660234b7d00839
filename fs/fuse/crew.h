/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which worker threads wait for requests. The kernel wakes the worker that has waited longest, so
 * with many idle workers each request of a program wakes another thread: the answer to one request
 * and the next request meet two threads, and two processors. While requests are short and a single
 * worker keeps up with them, the other workers park here. A request that may take long lets a
 * parked worker go on first. One parked worker, the deputy, notices within some milliseconds that
 * the workers in service are stuck in requests that should be short, or do not keep up. Without
 * requests no worker is parked. */
#ifndef FS_FUSE_CREW_H
#define FS_FUSE_CREW_H

#include <stdbool.h>
#include <stdint.h>

struct crew;

/* For this many workers: 0 or -ENOMEM. */
int crew_new(unsigned workers, struct crew **crew);
void crew_free(struct crew *crew);

/* By the worker of this number. crew_is_surplus: whether the worker has seen for some time that
 * another worker waits for requests as well; then crew_park, which returns when the worker is
 * needed. crew_wait: before each read of a request. crew_take: after the read, before the work;
 * opcode: enum fuse_opcode. */
bool crew_is_surplus(struct crew *crew, unsigned number);
void crew_park(struct crew *crew, unsigned number);
void crew_wait(struct crew *crew, unsigned number);
void crew_take(struct crew *crew, unsigned number, uint32_t opcode);
/* From now on no worker parks. */
void crew_end(struct crew *crew);

/* The number of parked workers. */
unsigned crew_parked(struct crew *crew);

#endif
