/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Helpers for the programs that speak the sharing protocol by hand. */
#ifndef TESTS_MOUNT_PROTOCOL_H
#define TESTS_MOUNT_PROTOCOL_H

#include "tests/mount/prog.h"

#include <grp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include "common/protocol.h"

#define USER	   65534
#define BYTES	   (4 * MIB)
#define ANSWER_MS  10000
#define PACKET_MAX 8192

union packet {
	struct gpumem_msg_header header;
	struct gpumem_msg_extend extend;
	struct gpumem_msg_release release;
	struct gpumem_msg_layout layout;
	struct gpumem_msg_key key;
	struct gpumem_msg_error error;
	struct gpumem_msg_notice notice;
	char bytes[PACKET_MAX];
};

struct answer {
	ssize_t bytes; /* 0: the daemon closed the connection */
	int fds[GPUMEM_FDS_MAX];
	unsigned n_fds;
	union packet packet; /* last: the union has arrays without length */
};

static inline int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = OK(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", getenv("MNT"),
		 GPUMEM_SOCKET_NAME);
	OK(connect(fd, (struct sockaddr *)&address, sizeof(address)));
	return fd;
}

/* No two requests of a process have the same number. */
static uint32_t last_request;

static inline struct gpumem_msg_header head(uint16_t type, size_t bytes)
{
	return (struct gpumem_msg_header){.magic = GPUMEM_MAGIC,
					  .version = GPUMEM_PROTOCOL_VERSION,
					  .type = type,
					  .bytes = (uint32_t)bytes,
					  .request = ++last_request};
}

static inline void say(int fd, const void *packet, size_t bytes)
{
	EQUAL(OK(send(fd, packet, bytes, MSG_NOSIGNAL)), (long long)bytes);
}

static inline struct answer hear(int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(GPUMEM_FDS_MAX * sizeof(int))];
	} control;
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	struct answer answer = {0};
	struct iovec part = {&answer.packet, sizeof(answer.packet)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	if (poll(&ready, 1, ANSWER_MS) != 1)
		FAIL("no answer");
	answer.bytes = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	if (answer.bytes < 0 && errno == ECONNRESET)
		answer.bytes = 0;
	OK(answer.bytes);
	struct cmsghdr *with = CMSG_FIRSTHDR(&message);

	if (answer.bytes && with) {
		answer.n_fds = (unsigned)((with->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(answer.fds, CMSG_DATA(with), answer.n_fds * sizeof(int));
	}
	return answer;
}

static inline struct answer hear_layout(int fd)
{
	struct answer answer = hear(fd);

	CHECK(answer.bytes >= (ssize_t)sizeof(answer.packet.layout));
	EQUAL(answer.packet.header.type, GPUMEM_MSG_LAYOUT);
	EQUAL(answer.n_fds, answer.packet.layout.n_chunks);
	return answer;
}

static inline void drop(const struct answer *answer)
{
	for (unsigned i = 0; i < answer->n_fds; i++)
		OK(close(answer->fds[i]));
}

static inline int leases_of(int fd)
{
	char text[24] = "";

	OK(fgetxattr(fd, "user.gpumem.leases", text, sizeof(text) - 1));
	return atoi(text);
}

/* The daemon notices the end of a connection with a delay. */
static inline void expect_leases(int fd, int wanted)
{
	AWAIT(leases_of(fd) == wanted);
	EQUAL(leases_of(fd), wanted);
}

static inline int filled_file(const char *path, mode_t mode)
{
	int fd = OK(open(path, O_CREAT | O_RDWR | O_CLOEXEC, mode));

	pattern_write(fd, 3, 0, BYTES);
	return fd;
}

static inline struct gpumem_lease_ask key_of(int connection)
{
	struct gpumem_msg_header hello = head(GPUMEM_MSG_HELLO, sizeof(hello));
	struct gpumem_lease_ask ask = {.version = GPUMEM_PROTOCOL_VERSION};

	say(connection, &hello, sizeof(hello));
	struct answer answer = hear(connection);

	EQUAL(answer.bytes, sizeof(answer.packet.key));
	EQUAL(answer.packet.header.type, GPUMEM_MSG_KEY);
	EQUAL(answer.packet.header.request, hello.request);
	memcpy(ask.key, answer.packet.key.key, sizeof(ask.key));
	return ask;
}

/* 0 with the answer, or the errno of the refusal. */
static inline int lease_with(struct gpumem_lease_ask *ask, int fd, int connection,
			     struct answer *answer)
{
	ask->request = ++last_request;
	if (ioctl(fd, GPUMEM_IOC_LEASE, ask) < 0)
		return errno;
	*answer = hear_layout(connection);
	EQUAL(answer->packet.header.request, ask->request);
	return 0;
}

static inline int lease_try(int fd, int connection, struct answer *answer)
{
	struct gpumem_lease_ask ask = key_of(connection);

	return lease_with(&ask, fd, connection, answer);
}

static inline struct answer lease_over(int connection, int fd)
{
	struct answer answer;

	EQUAL(lease_try(fd, connection, &answer), 0);
	return answer;
}

/* A connection for notices. */
static inline int listening(void)
{
	struct gpumem_msg_listen listen = {.header = head(GPUMEM_MSG_LISTEN, sizeof(listen)),
					   .flags = GPUMEM_LISTEN_PARK};
	int connection = dial();

	say(connection, &listen, sizeof(listen));
	EQUAL(hear(connection).packet.header.type, GPUMEM_MSG_DONE);
	return connection;
}

/* A client without errors is served after the errors of other clients. */
static inline void all_is_well(int fd)
{
	int connection = dial();

	struct answer answer = lease_over(connection, fd);

	EQUAL(answer.packet.layout.size, BYTES);
	drop(&answer);
	OK(close(connection));
	expect_leases(fd, 0);
	pattern_check(fd, 3, 0, BYTES);
}

static inline void become_user(void)
{
	OK(setgroups(0, NULL));
	OK(setresgid(USER, USER, USER));
	OK(setresuid(USER, USER, USER));
}

#endif
