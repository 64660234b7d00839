/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The packets of the sharing protocol: requests are parsed from hostile bytes, by functions without
 * state. The functions that send answers are in internal.h. */
#ifndef FS_SHARE_WIRE_H
#define FS_SHARE_WIRE_H

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

/* 0; -EBADMSG unless the packet is exactly a request of the protocol; -EPROTONOSUPPORT for another
 * version of the protocol. */
int share_request_parse(const void *packet, size_t bytes, struct share_request *request);

#endif
