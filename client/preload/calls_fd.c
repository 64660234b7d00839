/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Calls that open, close and copy descriptors. */
#include <errno.h>
#include <limits.h>

#include "client/preload/core/calls.h"
#include "client/preload/slot.h"

static int fd_note_opened(int fd)
{
	if (fd >= 0)
		slot_opened(fd);
	return fd;
}

CALL("close", int, call_close, int fd)
{
	real_need();
	if (own_is(fd)) {
		if (!own_inside) {
			errno = EBADF;
			return -1;
		}
		own_forget(fd);
	}
	slot_closing(fd);
	return real.close(fd);
}

static void fds_note_closing(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < DESCRIPTORS_MAX; fd++)
		slot_closing((int)fd);
}

/* Closes the range but for the library's own descriptors. */
CALL("close_range", int, call_close_range, unsigned first, unsigned last, int flags)
{
	real_need();
	if (own_inside || first > last)
		return real.close_range(first, last, flags);
	if (!flags)
		fds_note_closing(first, last);
	for (;;) {
		unsigned own_fd = own_next(first, last);
		bool found = own_fd <= last && own_fd < DESCRIPTORS_MAX && own_is((int)own_fd);
		if (!found)
			return real.close_range(first, last, flags);
		if (own_fd > first && real.close_range(first, own_fd - 1, flags) < 0)
			return -1;
		if (own_fd == last)
			return 0;
		first = own_fd + 1;
	}
}

CALL("closefrom", void, call_closefrom, int first)
{
	if (call_close_range(first > 0 ? (unsigned)first : 0, UINT_MAX, 0) < 0)
		real.closefrom(first);
}

CALL("dup", int, call_dup, int fd)
{
	real_need();
	return fd_note_opened(real.dup(fd));
}

/* The program cannot replace a descriptor of the library. EBUSY is the kernel's error for a race
 * with open(2), which has the same effect. */
static bool fd_may_replace(int fd, int source)
{
	if (fd == source || own_inside)
		return true;
	if (own_is(fd) && own_process()) {
		errno = EBUSY;
		return false;
	}
	slot_closing(fd);
	return true;
}

CALL("dup2", int, call_dup2, int fd, int target)
{
	real_need();
	return fd_may_replace(target, fd) ? real.dup2(fd, target) : -1;
}

CALL("dup3", int, call_dup3, int fd, int target, int flags)
{
	real_need();
	return fd_may_replace(target, fd) ? real.dup3(fd, target, flags) : -1;
}
