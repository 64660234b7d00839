/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef CLIENT_CORE_SEND_H
#define CLIENT_CORE_SEND_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
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

/* As client_send, with descriptors, which stay the caller's: 0; -EPERM: the kernel refuses
 * descriptors for this peer; or another -errno. */
static inline int client_send_fds(int fd, struct gpumem_msg_header *message, uint16_t type,
				  size_t bytes, uint32_t request, const int *fds, uint32_t n_fds)
{
	union {
		struct cmsghdr header; /* for its alignment */
		char bytes[CMSG_SPACE(GPUMEM_FDS_MAX * sizeof(int))];
	} control = {0};
	struct iovec part = {message, bytes};
	struct msghdr packet = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = CMSG_SPACE(n_fds * sizeof(int))};
	ssize_t sent;

	*message = (struct gpumem_msg_header){.magic = GPUMEM_MAGIC,
					      .version = GPUMEM_PROTOCOL_VERSION,
					      .type = type,
					      .bytes = (uint32_t)bytes,
					      .request = request};
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
	memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
	do {
		sent = sendmsg(fd, &packet, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent == (ssize_t)bytes ? 0 : sent < 0 ? -errno : -EIO;
}

#endif
