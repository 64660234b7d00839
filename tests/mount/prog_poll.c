/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host */
/* needs: daemon
 * Files are always ready for poll(2) and epoll, and the kernel answers without the daemon: the
 * daemon gets at most a single poll request, whatever polls, including io_uring's buffered writes.
 */
#include "tests/mount/uring.h"

#include <poll.h>
#include <sys/epoll.h>

#define WRITES 64
#define BLOCK  4096

/* Number of poll requests that the daemon has counted. */
static long polls(void)
{
	static char text[1 << 20];
	char path[PATH_MAX];
	size_t length = 0;
	ssize_t got;

	snprintf(path, sizeof(path), "%s/.gpumem/stats.json", getenv("MNT"));
	int fd = OK(open(path, O_RDONLY));

	while ((got = OK(read(fd, text + length, sizeof(text) - 1 - length))))
		length += (size_t)got;
	text[length] = '\0';
	OK(close(fd));
	const char *poll = strstr(text, "\"poll\": {"),
		   *count = poll ? strstr(poll, "\"requests\": ") : NULL;

	CHECK(count);
	return strtol(count + strlen("\"requests\": "), NULL, 10);
}

static void files_are_ready(void)
{
	const short all = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;
	int fd = new_file("file"), set = OK(epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};

	for (int i = 0; i < 100; i++) {
		struct pollfd one = {.fd = fd, .events = all};

		EQUAL(OK(poll(&one, 1, -1)), 1);
		EQUAL(one.revents, all);
	}
	OK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	for (int i = 0; i < 100; i++)
		EQUAL(OK(epoll_wait(set, &event, 1, -1)), 1);
	CHECK(polls() <= 1);
}

static void write_by_uring(const char *path)
{
	static char block[BLOCK];
	struct uring uring;
	int fd = new_file(path);

	if (!uring_open(&uring))
		SKIP("no io_uring here");
	for (int i = 0; i < WRITES; i++) {
		pattern_fill(block, BLOCK, 1, (uint64_t)i * BLOCK);
		EQUAL(uring_write(&uring, fd, block, BLOCK, (uint64_t)i * BLOCK), BLOCK);
	}
	pattern_check(fd, 1, 0, (size_t)WRITES * BLOCK);
	CHECK(polls() <= 1);
}

static void writes_of_io_uring(void)
{
	write_by_uring("file");
}

static void writes_of_io_uring_to_host(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", getenv("HOSTDIR"), getenv("TEST"));
	write_by_uring(path);
	OK(unlink(path));
}

PROG(TEST(files_are_ready), TEST(writes_of_io_uring), TEST(writes_of_io_uring_to_host))
