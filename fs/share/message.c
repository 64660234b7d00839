/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share/message.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct gpumem_msg_lease) <= SHARE_REQUEST_MAX &&
		   sizeof(struct gpumem_msg_extend) <= SHARE_REQUEST_MAX &&
		   sizeof(struct gpumem_msg_release) <= SHARE_REQUEST_MAX,
	       "SHARE_REQUEST_MAX holds every request");

static int parse_lease(const void *packet, size_t bytes, struct share_request *request)
{
	struct gpumem_msg_lease message;

	if (bytes != sizeof(message))
		return -EBADMSG;
	memcpy(&message, packet, sizeof(message));
	memcpy(request->token, message.token, sizeof(request->token));
	return 0;
}

static int parse_extend(const void *packet, size_t bytes, struct share_request *request)
{
	struct gpumem_msg_extend message;

	if (bytes != sizeof(message))
		return -EBADMSG;
	memcpy(&message, packet, sizeof(message));
	request->lease = message.lease;
	request->first_chunk = message.first_chunk;
	/* No file has so many chunks as would not fit their number. */
	return message.first_chunk > UINT32_MAX ? -EBADMSG : 0;
}

static int parse_release(const void *packet, size_t bytes, struct share_request *request)
{
	struct gpumem_msg_release message;

	if (bytes != sizeof(message))
		return -EBADMSG;
	memcpy(&message, packet, sizeof(message));
	request->lease = message.lease;
	return 0;
}

int share_request_parse(const void *packet, size_t bytes, struct share_request *request)
{
	struct gpumem_msg_header header;

	if (bytes < sizeof(header))
		return -EBADMSG;
	memcpy(&header, packet, sizeof(header));
	if (header.magic != GPUMEM_MAGIC || header.bytes != bytes)
		return -EBADMSG;
	if (header.version != GPUMEM_PROTOCOL_VERSION)
		return -EPROTONOSUPPORT;
	*request = (struct share_request){.type = header.type, .number = header.request};
	switch (header.type) {
	case GPUMEM_MSG_LEASE:
		return parse_lease(packet, bytes, request);
	case GPUMEM_MSG_EXTEND:
		return parse_extend(packet, bytes, request);
	case GPUMEM_MSG_RELEASE:
		return parse_release(packet, bytes, request);
	case GPUMEM_MSG_HELLO:
		return bytes == sizeof(header) ? 0 : -EBADMSG;
	default:
		return -EBADMSG;
	}
}

uint32_t share_request_mark(const struct share_request *request)
{
	uint32_t mark;

	memcpy(&mark, request->token, sizeof(mark));
	return mark ? mark : 1;
}
