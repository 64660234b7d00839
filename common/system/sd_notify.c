/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/system/sd_notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/number.h"
#include "common/system/descriptors.h"

#define PATIENCE_SECONDS 2

/* $NOTIFY_SOCKET is a path, or an abstract name with @ in front: 0 or -errno. */
static int notify_address(const char *name, struct sockaddr_un *address, socklen_t *length)
{
	size_t bytes = strlen(name);

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (name[0] != '/' && name[0] != '@')
		return -EAFNOSUPPORT;
	if (bytes >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	memcpy(address->sun_path, name, bytes);
	if (name[0] == '@')
		address->sun_path[0] = 0;
	*length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
	return 0;
}

static int notify_send_to(const char *name, const char *state, int fd_sent)
{
	struct sockaddr_un address;
	socklen_t length;
	int error = notify_address(name, &address, &length);

	if (error)
		return error;
	int fd AUTO_CLOSE = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	/* Does not wait long for a service manager that does not read. */
	struct timeval patience = {.tv_sec = PATIENCE_SECONDS};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	struct iovec part = {.iov_base = (char *)state, .iov_len = strlen(state)};
	struct msghdr message = {
	    .msg_name = &address, .msg_namelen = length, .msg_iov = &part, .msg_iovlen = 1};
	union descriptor_control control;

	if (fd_sent >= 0)
		descriptor_attach(&message, &control, fd_sent);
	return sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int notify_send(const char *state)
{
	return notify_send_fd(state, -1);
}

int notify_send_fd(const char *state, int fd)
{
	const char *name = getenv("NOTIFY_SOCKET");
	int error = name && *name ? notify_send_to(name, state, fd) : 0;

	if (error)
		log_warn("cannot notify the service manager at %s: %s", name, strerror(-error));
	return error;
}

bool notify_has_fds(void)
{
	const char *process = getenv("LISTEN_PID"), *names = getenv("LISTEN_FDNAMES");
	uint64_t pid;

	return process && names && parse_u64(process, 1, INT32_MAX, &pid) == 0 &&
	       (pid_t)pid == getpid() &&
	       strncmp(names, NOTIFY_FD_PREFIX, strlen(NOTIFY_FD_PREFIX)) == 0;
}

uint64_t notify_watchdog_us(void)
{
	const char *period = getenv("WATCHDOG_USEC"), *owner = getenv("WATCHDOG_PID");
	uint64_t us, pid;

	if (!period || parse_u64(period, 1, INT64_MAX, &us))
		return 0;
	if (owner && (parse_u64(owner, 1, INT32_MAX, &pid) || (pid_t)pid != getpid()))
		return 0;
	return us;
}
