/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/core/own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/core/driver_thread.h"
#include "client/preload/core/real.h"

/* Above the descriptors of most programs, below the usual limits. */
#define LOWEST 512

_Thread_local int own_inside;

static atomic_bool own_fds[DESCRIPTORS_MAX];
static atomic_int owner_pid;

static int number_lowest(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < 2UL * LOWEST)
		return 3;
	return limit.rlim_cur < 2UL * DESCRIPTORS_MAX ? (int)(limit.rlim_cur / 2)
						      : DESCRIPTORS_MAX / 2;
}

static int fd_mark(int fd)
{
	if (fd >= 0 && fd < DESCRIPTORS_MAX && !client_driver_thread_here())
		atomic_store(&own_fds[fd], true);
	return fd;
}

int own_copy(int fd)
{
	int error = errno, copy = fcntl(fd, F_DUPFD_CLOEXEC, number_lowest());

	errno = error;
	return fd_mark(copy);
}

int own_adopt(int fd)
{
	int high = fd < 0 ? -1 : own_copy(fd);

	if (high < 0)
		return fd_mark(fd);
	real.close(fd);
	return high;
}

bool own_is(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS_MAX &&
	       atomic_load_explicit(&own_fds[fd], memory_order_relaxed) &&
	       !client_driver_thread_here();
}

void own_forget(int fd)
{
	if (own_is(fd))
		atomic_store(&own_fds[fd], false);
}

unsigned own_next(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < DESCRIPTORS_MAX; fd++)
		if (own_is((int)fd))
			return fd;
	return last + 1;
}

bool own_process(void)
{
	return atomic_load_explicit(&owner_pid, memory_order_relaxed) == getpid();
}

void own_process_is_this(void)
{
	atomic_store(&owner_pid, getpid());
}

/* The driver's calls in its thread are not the program's calls. */
void own_thread_began(void)
{
	own_inside++;
}

/* These two replace libc's functions for calls by libgpumem in this library only. */
int own_socket(int domain, int type, int protocol) __asm__("socket");
int own_socket(int domain, int type, int protocol)
{
	return own_adopt(real.socket(domain, type, protocol));
}

ssize_t own_recvmsg(int fd, struct msghdr *message, int flags) __asm__("recvmsg");
ssize_t own_recvmsg(int fd, struct msghdr *message, int flags)
{
	ssize_t n = real.recvmsg(fd, message, flags);

	if (n < 0)
		return n;
	for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
		if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			unsigned char *entry = CMSG_DATA(at) + i * sizeof(int);
			int received_fd;
			memcpy(&received_fd, entry, sizeof(received_fd));
			received_fd = own_adopt(received_fd);
			memcpy(entry, &received_fd, sizeof(received_fd));
		}
	}
	return n;
}
