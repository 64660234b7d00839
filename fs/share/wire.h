/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Packets of the sharing protocol, checked. Pure: what comes in is hostile. */
#ifndef FS_SHARE_WIRE_H
#define FS_SHARE_WIRE_H

#include <stddef.h>

#include "common/protocol.h"

/* The largest request; a longer packet is refused without being looked at. */
#define SHARE_REQUEST_MAX 64

struct share_request {
	enum gpumem_message_type type; /* GPUMEM_MSG_LEASE, EXTEND, RELEASE or HELLO */
	uint32_t number;
	uint64_t lease, first_chunk;
	uint8_t token[GPUMEM_TOKEN_BYTES];
};

/* 0, or -EBADMSG for anything but a request that is exactly as the protocol says;
 * -EPROTONOSUPPORT for one of another version. */
int share_request_parse(const void *packet, size_t bytes, struct share_request *request);
/* A part of the token of a LEASE, by which that request is told from the client's next one; never
 * 0. Tokens are random, and good for one request. */
uint32_t share_request_mark(const struct share_request *request);

#endif
