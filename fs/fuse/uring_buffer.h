/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The buffer of a request that came over io_uring. libfuse has one buffer for every entry of a
 * ring, and a reply is fastest if its data is put into the buffer of the request. A GPU copies to
 * and from the buffer, so the thread of the ring pins the buffer at its first use until the thread
 * ends. */
#ifndef FS_FUSE_URING_BUFFER_H
#define FS_FUSE_URING_BUFFER_H

#include <fuse_lowlevel.h>

#include "fs/core/worker.h"

/* NULL if the request did not come over a ring. */
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

/* The place for the data of a reply; *bytes is lowered to the room there. */
static inline char *uring_buffer_reply(struct worker *worker, fuse_req_t req, size_t *bytes)
{
	size_t room;
	char *payload = uring_buffer_of(req, &room);

	if (payload) {
		worker_pin(worker, payload, room);
	} else {
		payload = worker_next_reply(worker);
		room = worker->reply_bytes;
	}
	if (*bytes > room)
		*bytes = room;
	return payload;
}

/* Pins the data of a request. Data from /dev/fuse is pinned already. */
static inline void uring_buffer_pin(struct worker *worker, fuse_req_t req)
{
	size_t bytes;
	char *payload = uring_buffer_of(req, &bytes);

	if (payload)
		worker_pin(worker, payload, bytes);
}

#endif
