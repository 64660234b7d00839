/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A minimal io_uring, for a single write at a time. */
#ifndef TESTS_MOUNT_URING_H
#define TESTS_MOUNT_URING_H

#include <linux/io_uring.h>
#include <sys/syscall.h>

#include "tests/mount/prog.h"

struct uring {
	int fd;
	struct io_uring_params params;
	char *sq, *cq;
	struct io_uring_sqe *sqes;
};

static inline void *uring_map(const struct uring *uring, size_t bytes, off_t what)
{
	void *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, uring->fd, what);

	CHECK(memory != MAP_FAILED);
	return memory;
}

/* Whether this user can use io_uring on this machine. */
static inline bool uring_open(struct uring *uring)
{
	*uring = (struct uring){0};
	uring->fd = (int)syscall(SYS_io_uring_setup, 8, &uring->params);
	if (uring->fd < 0)
		return false;
	uring->sq = uring_map(
	    uring, uring->params.sq_off.array + uring->params.sq_entries * sizeof(uint32_t),
	    IORING_OFF_SQ_RING);
	uring->cq = uring_map(uring,
			      uring->params.cq_off.cqes +
				  uring->params.cq_entries * sizeof(struct io_uring_cqe),
			      IORING_OFF_CQ_RING);
	uring->sqes = uring_map(uring, uring->params.sq_entries * sizeof(struct io_uring_sqe),
				IORING_OFF_SQES);
	return true;
}

/* Makes a buffered write and returns the result. */
static inline int uring_write(struct uring *uring, int fd, const void *from, unsigned bytes,
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

#endif
