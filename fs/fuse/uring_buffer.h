/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The buffer in which a request came, where it came over io_uring: libfuse has one for every entry
 * of a ring, and the reply's data is best put there too. As a GPU copies to and from it, the thread
 * that serves the ring has it pinned from its first use on. */
#ifndef FS_FUSE_URING_BUFFER_H
#define FS_FUSE_URING_BUFFER_H

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>

#include "fs/core/worker.h"

/* NULL where the request did not come over a ring. */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
static inline char *uring_buffer_of(fuse_req_t req, size_t *bytes)
{
	char *payload;

	return fuse_req_get_payload(req, &payload, bytes, NULL) == 0 ? payload : NULL;
}
#else
static inline char *uring_buffer_of(fuse_req_t req, size_t *bytes)
{
	(void)req, (void)bytes;
	return NULL;
}
#endif

/* Where to put the data of a reply, and how much of bytes fits there. */
static inline char *uring_buffer_reply(struct worker *worker, fuse_req_t req, size_t *bytes)
{
	size_t room;
	char *payload = uring_buffer_of(req, &room);

	if (payload) {
		worker_pin(worker, payload, room);
	} else {
		payload = worker->reply;
		room = worker->reply_bytes;
	}
	if (*bytes > room)
		*bytes = room;
	return payload;
}

/* Has the data of a request pinned. What comes from /dev/fuse is. */
static inline void uring_buffer_pin(struct worker *worker, fuse_req_t req)
{
	size_t bytes;
	char *payload = uring_buffer_of(req, &bytes);

	if (payload)
		worker_pin(worker, payload, bytes);
}

#endif
