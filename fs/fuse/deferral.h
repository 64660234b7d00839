/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Requests that may take long leave their worker for a thread of fs/turns, which serves the same
 * request from the start. So one user's slow requests wait for each other, and never for a worker
 * that other users need. A signal ends a request that waits in the queue with EINTR. */
#ifndef FS_FUSE_DEFERRAL_H
#define FS_FUSE_DEFERRAL_H

#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>

struct deferral;
struct fs;
struct worker;

/* What the worker noted about the request, for the thread of fs/turns. */
struct deferral_notes {
	unsigned observers;
	int64_t began;
};

/* By the worker, before any effect of the request: true if a thread of fs/turns serves the request
 * and answers; then the worker does not touch req again. False: the worker itself must serve the
 * request, because it is such a thread already, because the request came over io_uring, or for lack
 * of memory. */
bool deferral_begin(struct fs *fs, struct worker *worker, fuse_req_t req,
		    const struct deferral_notes *notes);
const struct deferral_notes *deferral_notes(const struct deferral *deferral);

/* The kernel's message that the caller of a request has a signal. By a worker. */
void deferral_interrupt(struct fs *fs, const void *message, size_t bytes);

#endif
