/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The packets of the sharing protocol: requests are parsed from hostile bytes, by functions without
 * state. The functions that send answers are in internal.h. */
#ifndef FS_SHARE_WIRE_H
#define FS_SHARE_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/protocol.h"

/* The largest request; a longer packet is refused unread. */
#define SHARE_REQUEST_MAX 64

struct share_request {
	enum gpumem_message_type type; /* of a message that clients send */
	uint32_t number;
	uint64_t lease, first_chunk; /* RELEASE has a lease, EXTEND both */
	uint32_t flags;		     /* LISTEN */
	int32_t error;		     /* NOTICED, and files */
	uint32_t files;
};

/* GPUMEM_MSG_PIECES is longer, and has descriptors. */
#define SHARE_PIECES_MAX (sizeof(struct gpumem_msg_pieces) + GPUMEM_FDS_MAX * sizeof(uint64_t))

/* Whether a packet of so many bytes, of which the first SHARE_REQUEST_MAX are there, says that it
 * is GPUMEM_MSG_PIECES. */
bool share_is_pieces(const void *packet, size_t bytes);
/* 0, or -EBADMSG unless the packet is exactly a GPUMEM_MSG_PIECES. */
int share_pieces_parse(const void *packet, size_t bytes, struct gpumem_msg_pieces *head);

/* 0; -EBADMSG unless the packet is exactly a request of the protocol; -EPROTONOSUPPORT for another
 * version of the protocol. */
int share_request_parse(const void *packet, size_t bytes, struct share_request *request);

#endif
