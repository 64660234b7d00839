/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* needs: daemon
 * Files are always ready for poll(2) and epoll, and the kernel says so itself: the daemon is asked
 * at most once, whatever polls, io_uring's buffered writes included. */
#include "tests/mount/prog.h"

#include <linux/io_uring.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define WRITES 64
#define BLOCK  4096

/* How many poll requests the daemon has counted. */
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

struct uring {
	int fd;
	struct io_uring_params params;
	char *sq, *cq;
	struct io_uring_sqe *sqes;
};

static void *uring_map(const struct uring *uring, size_t bytes, off_t what)
{
	void *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, uring->fd, what);

	CHECK(memory != MAP_FAILED);
	return memory;
}

static struct uring uring_open(void)
{
	struct uring uring = {0};

	uring.fd = (int)syscall(SYS_io_uring_setup, 8, &uring.params);
	if (uring.fd < 0)
		SKIP("no io_uring here");
	uring.sq = uring_map(&uring,
			     uring.params.sq_off.array + uring.params.sq_entries * sizeof(uint32_t),
			     IORING_OFF_SQ_RING);
	uring.cq = uring_map(&uring,
			     uring.params.cq_off.cqes +
				 uring.params.cq_entries * sizeof(struct io_uring_cqe),
			     IORING_OFF_CQ_RING);
	uring.sqes = uring_map(&uring, uring.params.sq_entries * sizeof(struct io_uring_sqe),
			       IORING_OFF_SQES);
	return uring;
}

/* One buffered write, and its result. */
static int uring_write(struct uring *uring, int fd, const void *from, unsigned bytes,
		       uint64_t offset)
{
	_Atomic uint32_t *tail = (void *)(uring->sq + uring->params.sq_off.tail);
	_Atomic uint32_t *head = (void *)(uring->cq + uring->params.cq_off.head);
	uint32_t slot = *tail & (uring->params.sq_entries - 1);
	uint32_t at = *head & (uring->params.cq_entries - 1);

	uring->sqes[slot] = (struct io_uring_sqe){.opcode = IORING_OP_WRITE,
						  .fd = fd,
						  .addr = (uint64_t)(uintptr_t)from,
						  .len = bytes,
						  .off = offset};
	((uint32_t *)(uring->sq + uring->params.sq_off.array))[slot] = slot;
	++*tail;
	EQUAL(OK(syscall(SYS_io_uring_enter, uring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0)), 1);
	int result = ((struct io_uring_cqe *)(uring->cq + uring->params.cq_off.cqes))[at].res;

	++*head;
	return result;
}

static void write_by_uring(const char *path)
{
	static char block[BLOCK];
	struct uring uring = uring_open();
	int fd = new_file(path);

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
