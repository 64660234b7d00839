/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The daemon's socket, with a relay in between. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/protocol.h"
#include "tests/mount/lying/lying.h"

#define PACKET_BYTES 65536

static struct sockaddr_un real = {.sun_family = AF_UNIX};
static struct lie (*lie_now)(void);

/* --- false packets */

static int odd_descriptor(const struct lie *lie)
{
	int pipes[2], fd;

	switch (lie_pick(lie, 2, 7)) {
	case 0:
		return open("/", O_RDONLY | O_CLOEXEC);
	case 1:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 2:
		return open("/dev/zero", O_RDWR | O_CLOEXEC);
	case 3:
		return eventfd(0, EFD_CLOEXEC);
	case 4:
		if (pipe2(pipes, O_CLOEXEC) < 0)
			return -1;
		close(pipes[1]);
		return pipes[0];
	case 5:
		return open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	default: /* an object shorter than the chunk */
		fd = memfd_create("short", MFD_CLOEXEC);
		return ftruncate(fd, 4096) == 0 ? fd : -1;
	}
}

static void replace_descriptors(const struct lie *lie, struct lie_packet *packet)
{
	for (unsigned i = 0; i < packet->n_fds; i++) {
		close(packet->fds[i]);
		packet->fds[i] = odd_descriptor(lie);
	}
}

static void lie_header(const struct lie *lie, struct gpumem_msg_header *header)
{
	switch (lie_pick(lie, 1, 5)) {
	case 0:
		header->magic ^= 1;
		break;
	case 1:
		header->version = (uint16_t)lie_pick(lie, 2, 65536);
		break;
	case 2:
		header->type = (uint16_t)lie_pick(lie, 2, 24);
		break;
	case 3:
		header->bytes = (uint32_t)lie_number(lie, 2);
		break;
	default:
		header->request++;
	}
}

static void lie_layout(const struct lie *lie, struct gpumem_msg_layout *layout)
{
	uint64_t number = lie_number(lie, 2);

	switch (lie_pick(lie, 1, 10)) {
	case 0:
		layout->size = number;
		break;
	case 1:
		layout->kind = (uint32_t)lie_pick(lie, 2, 5);
		break;
	case 2:
		layout->flags = (uint32_t)lie_pick(lie, 2, 16);
		break;
	case 3:
		layout->n_chunks = (uint32_t)number;
		break;
	case 4:
		layout->first_chunk = (uint32_t)number;
		break;
	case 5:
		layout->chunks[0].bytes = number;
		break;
	case 6:
		layout->chunks[0].bytes = number & ~((2ULL << 20) - 1);
		layout->size = number;
		break;
	case 7:
		layout->chunks[0].offset = number;
		break;
	case 8:
		layout->device = (uint32_t)number;
		memset(layout->uuid, 0xff, sizeof(layout->uuid));
		break;
	default:
		layout->lease = number;
		layout->reserved = (uint32_t)lie_pick(lie, 2, 2);
	}
}

static void make_error(const struct lie *lie, struct lie_packet *packet)
{
	struct gpumem_msg_error *error = (void *)packet->bytes;

	error->header.type = GPUMEM_MSG_ERROR;
	error->header.bytes = sizeof(*error);
	error->error = (int32_t)lie_number(lie, 1);
	error->reserved = (uint32_t)lie_pick(lie, 2, 2);
	packet->length = sizeof(*error);
}

bool lie_packet(const struct lie *lie, struct lie_packet *packet)
{
	struct gpumem_msg_header *header = (void *)packet->bytes;
	bool is_layout = header->type == GPUMEM_MSG_LAYOUT;

	switch (lie_pick(lie, 0, 10)) {
	case 0:
		for (size_t i = 0; i < packet->length; i++)
			packet->bytes[i] = (char)lie_pick(lie, (unsigned)i, 256);
		return false;
	case 1:
		packet->length = lie_pick(lie, 1, packet->length);
		return false;
	case 2:
		lie_header(lie, header);
		return false;
	case 3:
	case 4:
	case 5:
		if (is_layout)
			lie_layout(lie, (void *)packet->bytes);
		return !is_layout;
	case 6:
		replace_descriptors(lie, packet);
		return !is_layout;
	case 7:
		while (packet->n_fds)
			close(packet->fds[--packet->n_fds]);
		return !is_layout;
	case 8:
		while (packet->n_fds < LYING_FDS_MAX)
			packet->fds[packet->n_fds++] = odd_descriptor(lie);
		return !is_layout;
	default:
		make_error(lie, packet);
		return false;
	}
}

/* --- the relay */

union control {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(LYING_FDS_MAX * sizeof(int))];
};

static bool packet_receive(int from, struct lie_packet *packet)
{
	union control control;
	struct iovec part = {packet->bytes, packet->room};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(from, &message, MSG_CMSG_CLOEXEC);

	packet->n_fds = 0;
	packet->length = n > 0 ? (size_t)n : 0;
	if (n > 0 && message.msg_controllen) {
		packet->n_fds = (unsigned)((control.head.cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(packet->fds, CMSG_DATA(&control.head), packet->n_fds * sizeof(int));
	}
	return n > 0;
}

static bool packet_send(int to, struct lie_packet *packet)
{
	size_t bytes = packet->n_fds * sizeof(int);
	union control control = {.head = {CMSG_LEN(bytes), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec part = {packet->bytes, packet->length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (packet->n_fds) {
		memcpy(CMSG_DATA(&control.head), packet->fds, bytes);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(bytes);
	}
	bool sent = sendmsg(to, &message, MSG_NOSIGNAL) >= 0;
	while (packet->n_fds)
		close(packet->fds[--packet->n_fds]);
	return sent;
}

static bool relay(int client, int daemon, struct lie_packet *packet)
{
	struct pollfd ends[2] = {{client, POLLIN, 0}, {daemon, POLLIN, 0}};

	if (poll(ends, 2, -1) < 0)
		return errno == EINTR;
	if (ends[0].revents)
		return packet_receive(client, packet) && packet_send(daemon, packet);
	if (!packet_receive(daemon, packet))
		return false;
	struct lie lie = lie_now();
	bool goes_on = lie.kind != LIE_SOCKET || lie_packet(&lie, packet);
	return packet_send(client, packet) && goes_on;
}

static void *serve(void *argument)
{
	int client = (int)(intptr_t)argument;
	int daemon = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct lie_packet packet = {.bytes = calloc(1, PACKET_BYTES), .room = PACKET_BYTES};

	if (packet.bytes && connect(daemon, (struct sockaddr *)&real, sizeof(real)) == 0)
		while (relay(client, daemon, &packet))
			;
	free(packet.bytes);
	close(daemon);
	close(client);
	return NULL;
}

static void *accept_all(void *argument)
{
	int listening = (int)(intptr_t)argument, client;
	pthread_t thread;

	while ((client = accept4(listening, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)client) == 0)
			pthread_detach(thread);
		else
			close(client);
	return NULL;
}

int lying_socket_start(const char *path, const char *to, struct lie (*current)(void))
{
	struct sockaddr_un here = {.sun_family = AF_UNIX};
	int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pthread_t thread;

	lie_now = current;
	snprintf(real.sun_path, sizeof(real.sun_path), "%s", to);
	snprintf(here.sun_path, sizeof(here.sun_path), "%s", path);
	if (bind(listening, (struct sockaddr *)&here, sizeof(here)) < 0 ||
	    listen(listening, 64) < 0 ||
	    pthread_create(&thread, NULL, accept_all, (void *)(intptr_t)listening) != 0)
		return -1;
	return pthread_detach(thread);
}
