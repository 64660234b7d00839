/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef CLIENT_CORE_SEND_H
#define CLIENT_CORE_SEND_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "common/protocol.h"

/* Sends a message, of which this function writes the header. flags: of send(2). False: the
 * connection takes no message, or with MSG_DONTWAIT none now. */
static inline bool client_send(int fd, struct gpumem_msg_header *message, uint16_t type,
			       size_t bytes, uint32_t request, int flags)
{
	ssize_t sent;

	*message = (struct gpumem_msg_header){.magic = GPUMEM_MAGIC,
					      .version = GPUMEM_PROTOCOL_VERSION,
					      .type = type,
					      .bytes = (uint32_t)bytes,
					      .request = request};
	do {
		sent = send(fd, message, bytes, flags | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent == (ssize_t)bytes;
}

#endif
