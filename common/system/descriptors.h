/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The limit on file descriptors. Descriptors held for users must leave a reserve for the daemon's
 * own work: sockets, /dev/fuse, the journal, the spool, memory on its way to a client. The kernel
 * gives out the lowest free number, so the reserve is the numbers just below the limit.
 * Also: sending a descriptor beside a message. */
#ifndef COMMON_SYSTEM_DESCRIPTORS_H
#define COMMON_SYSTEM_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* The use of a descriptor. Connections may use half of the reserve, so that files can still be
 * shared when memory has used its whole part. */
enum descriptor_use { DESCRIPTOR_MEMORY, DESCRIPTOR_CONNECTION, DESCRIPTOR_OWN };

/* Raises the soft limit to the hard limit, and returns the limit. */
uint64_t descriptors_raise(void);
uint64_t descriptors_limit(void);
/* How many of limit descriptors may have that use. */
uint64_t descriptors_for(enum descriptor_use use, uint64_t limit);
/* fd, a new descriptor or -1. If fd is in the reserve and the use may not have the reserve, closes
 * fd and returns -1 with errno EMFILE. */
int descriptor_unreserved(enum descriptor_use use, int fd);

/* Room for a descriptor beside a message. */
union descriptor_control {
	struct cmsghdr header; /* for alignment */
	char bytes[CMSG_SPACE(sizeof(int))];
};

/* Sends fd with the message. control is used until the message was sent. */
static inline void descriptor_attach(struct msghdr *message, union descriptor_control *control,
				     int fd)
{
	*control = (union descriptor_control){.bytes = {0}};
	message->msg_control = control->bytes;
	message->msg_controllen = sizeof(control->bytes);
	control->header = (struct cmsghdr){CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(&control->header), &fd, sizeof(fd));
}

#endif
