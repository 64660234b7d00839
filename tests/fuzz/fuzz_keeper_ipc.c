/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A packet to a keeper or to a daemon of a keeper: the first byte of the input is the number of
 * descriptors that come with the packet, the rest is the packet. An accepted message is of this
 * protocol, its text has an end, and no descriptor stays behind. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/keeper/ipc.h"

#define FDS_MAX 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static bool packet_send(int socket, const uint8_t *packet, size_t bytes, unsigned n_fds)
{
	char control[CMSG_SPACE(sizeof(int) * FDS_MAX)] = {0};
	struct iovec iov = {.iov_base = (void *)packet, .iov_len = bytes};
	struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n_fds) {
		header.msg_control = control;
		header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
		*cmsg = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int) * n_fds),
					 .cmsg_level = SOL_SOCKET,
					 .cmsg_type = SCM_RIGHTS};
		for (unsigned i = 0; i < n_fds; i++)
			memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &socket, sizeof(int));
	}
	return sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

/* The lowest free descriptor: the same before and after, unless one stays behind. */
static int next_descriptor(int socket)
{
	int fd = fcntl(socket, F_DUPFD_CLOEXEC, 0);

	close(fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int ends[2] = {-1, -1};
	struct ipc_message message;
	int fd = -1;

	if (ends[0] < 0)
		require(ipc_pair(ends) == 0);
	int next = next_descriptor(ends[0]);
	if (size < 2 || !packet_send(ends[0], data + 1, size - 1, data[0] % (FDS_MAX + 1)))
		return 0;
	if (ipc_receive(ends[1], &message, &fd) == 0) {
		require(message.version == IPC_VERSION && !message.reserved);
		require(message.type >= IPC_WELCOME && message.type < IPC_TYPES);
		require(memchr(message.text, '\0', sizeof(message.text)));
		if (fd >= 0)
			close(fd);
	}
	require(next_descriptor(ends[0]) == next);
	return 0;
}
