/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINE_MAGIC 0x4b454550u /* "PEEK", as the keeper reads it */

int line_pair(int ends[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) ? -errno : 0;
}

struct line_message line_message(enum line_type type, uint64_t id)
{
	return (struct line_message){
	    .magic = LINE_MAGIC, .version = LINE_VERSION, .type = type, .id = id};
}

union control {
	struct cmsghdr header; /* for its alignment */
	char bytes[CMSG_SPACE(sizeof(int))];
};

static void put_fd(struct msghdr *packet, union control *control, int fd)
{
	packet->msg_control = control->bytes;
	packet->msg_controllen = sizeof(control->bytes);
	struct cmsghdr *head = CMSG_FIRSTHDR(packet);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
}

static int send_packet(int line, const struct line_message *message, int fd, int flags)
{
	struct iovec part = {.iov_base = (void *)message, .iov_len = sizeof(*message)};
	struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
	union control control = {0};
	ssize_t n;

	if (fd >= 0)
		put_fd(&packet, &control, fd);
	do {
		n = sendmsg(line, &packet, MSG_NOSIGNAL | flags);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return 0;
	return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
}

int line_send(int line, const struct line_message *message, int fd)
{
	return send_packet(line, message, fd, 0);
}

int line_offer(int line, const struct line_message *message, int fd)
{
	return send_packet(line, message, fd, MSG_DONTWAIT);
}

/* There is room for one: the kernel closes others. */
static int taken_fd(struct msghdr *packet)
{
	struct cmsghdr *head = CMSG_FIRSTHDR(packet);
	int fd = -1;

	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
	    head->cmsg_len == CMSG_LEN(sizeof(fd)))
		memcpy(&fd, CMSG_DATA(head), sizeof(fd));
	return fd;
}

static bool sound(const struct line_message *message, size_t bytes)
{
	return bytes == sizeof(*message) && message->magic == LINE_MAGIC &&
	       message->version == LINE_VERSION && message->type > 0 &&
	       message->type < LINE_TYPES && !message->reserved &&
	       !message->text[LINE_TEXT_BYTES - 1];
}

static int receive_packet(int line, struct line_message *message, int *fd, int flags)
{
	struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
	union control control = {0};
	struct msghdr packet = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof(control.bytes)};
	ssize_t n;

	*fd = -1;
	do {
		n = recvmsg(line, &packet, MSG_CMSG_CLOEXEC | flags);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	*fd = taken_fd(&packet);
	if (n > 0 && !(packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && sound(message, (size_t)n))
		return 0;
	/* No room for another fd shows here. */
	int error = n == 0 ? -EPIPE : packet.msg_flags & MSG_CTRUNC ? -EMFILE : -EPROTO;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return error;
}

int line_receive(int line, struct line_message *message, int *fd)
{
	return receive_packet(line, message, fd, 0);
}

int line_poll(int line, struct line_message *message, int *fd)
{
	return receive_packet(line, message, fd, MSG_DONTWAIT);
}
