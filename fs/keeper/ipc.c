/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/system/descriptors.h"

#define IPC_MAGIC 0x4b454550u /* "PEEK" in the memory of a little-endian machine */

int ipc_pair(int ends[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) ? -errno : 0;
}

struct ipc_message ipc_message(enum ipc_type type, uint64_t id)
{
	return (struct ipc_message){
	    .magic = IPC_MAGIC, .version = IPC_VERSION, .type = type, .id = id};
}

static int send_packet(int ipc, const struct ipc_message *message, int fd, int flags)
{
	struct iovec part = {.iov_base = (void *)message, .iov_len = sizeof(*message)};
	struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
	union descriptor_control control;
	ssize_t n;

	if (fd >= 0)
		descriptor_attach(&packet, &control, fd);
	do {
		n = sendmsg(ipc, &packet, MSG_NOSIGNAL | flags);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return 0;
	return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
}

int ipc_send(int ipc, const struct ipc_message *message, int fd)
{
	return send_packet(ipc, message, fd, 0);
}

int ipc_offer(int ipc, const struct ipc_message *message, int fd)
{
	return send_packet(ipc, message, fd, MSG_DONTWAIT);
}

/* Room for a single descriptor: the kernel closes more. */
static int taken_fd(struct msghdr *packet)
{
	struct cmsghdr *head = CMSG_FIRSTHDR(packet);
	int fd = -1;

	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
	    head->cmsg_len == CMSG_LEN(sizeof(fd)))
		memcpy(&fd, CMSG_DATA(head), sizeof(fd));
	return fd;
}

static bool message_is_valid(const struct ipc_message *message, size_t bytes)
{
	return bytes == sizeof(*message) && message->magic == IPC_MAGIC &&
	       message->version == IPC_VERSION && message->type > 0 && message->type < IPC_TYPES &&
	       !message->reserved && !message->text[IPC_TEXT_BYTES - 1];
}

static int receive_packet(int ipc, struct ipc_message *message, int *fd, int flags)
{
	struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
	union descriptor_control control = {0};
	struct msghdr packet = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				/* Without the padding, in which a second descriptor would fit. */
				.msg_controllen = CMSG_LEN(sizeof(int))};
	ssize_t n;

	*fd = -1;
	do {
		n = recvmsg(ipc, &packet, MSG_CMSG_CLOEXEC | flags);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	*fd = taken_fd(&packet);
	if (n > 0 && !(packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
	    message_is_valid(message, (size_t)n))
		return 0;
	/* MSG_CTRUNC: the process had no room for another descriptor. */
	int error = n == 0 ? -EPIPE : packet.msg_flags & MSG_CTRUNC ? -EMFILE : -EPROTO;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return error;
}

int ipc_receive(int ipc, struct ipc_message *message, int *fd)
{
	return receive_packet(ipc, message, fd, 0);
}

int ipc_poll(int ipc, struct ipc_message *message, int *fd)
{
	return receive_packet(ipc, message, fd, MSG_DONTWAIT);
}
