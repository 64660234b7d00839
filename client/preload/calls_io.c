/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* read, write and their variants. */
#include "client/preload/core/calls.h"
#include "client/preload/io.h"

/* Serves the call directly, or makes the kernel's call and counts its answer as a use of the file.
 */
#define SERVE(direction_, fd_, parts_, n_, offset_, kernel)                                        \
	({                                                                                         \
		struct io_call call_ = {direction_, fd_, parts_, n_, offset_};                     \
		ssize_t answer_;                                                                   \
		real_need();                                                                       \
		if (own_inside || !io_direct(&call_, &answer_)) {                                  \
			answer_ = (kernel);                                                        \
			io_was_left(&call_, answer_);                                              \
		}                                                                                  \
		answer_;                                                                           \
	})

/* A program's offset is never IO_AT_POSITION. */
static off_t offset_given(off_t offset)
{
	return offset < 0 ? -1 : offset;
}

static struct iovec part(const void *at, size_t bytes)
{
	return (struct iovec){.iov_base = (void *)at, .iov_len = bytes};
}

CALL("read", ssize_t, call_read, int fd, void *to, size_t bytes)
{
	struct iovec buffer = part(to, bytes);

	return SERVE(IO_READ, fd, &buffer, 1, IO_AT_POSITION, real.read(fd, to, bytes));
}

CALL("__read_chk", ssize_t, call_read_chk, int fd, void *to, size_t bytes, size_t room)
{
	struct iovec buffer = part(to, bytes);

	if (bytes > room)
		return real_need(), real.__read_chk(fd, to, bytes, room);
	return SERVE(IO_READ, fd, &buffer, 1, IO_AT_POSITION, real.read(fd, to, bytes));
}

CALL("write", ssize_t, call_write, int fd, const void *from, size_t bytes)
{
	struct iovec buffer = part(from, bytes);

	return SERVE(IO_WRITE, fd, &buffer, 1, IO_AT_POSITION, real.write(fd, from, bytes));
}

CALL("pread64", ssize_t, call_pread, int fd, void *to, size_t bytes, off_t offset)
{
	struct iovec buffer = part(to, bytes);

	return SERVE(IO_READ, fd, &buffer, 1, offset_given(offset),
		     real.pread64(fd, to, bytes, offset));
}
CALL_ALSO("pread", "pread64")

CALL("__pread64_chk", ssize_t, call_pread_chk, int fd, void *to, size_t bytes, off_t offset,
     size_t room)
{
	struct iovec buffer = part(to, bytes);

	if (bytes > room)
		return real_need(), real.__pread64_chk(fd, to, bytes, offset, room);
	return SERVE(IO_READ, fd, &buffer, 1, offset_given(offset),
		     real.pread64(fd, to, bytes, offset));
}
CALL_ALSO("__pread_chk", "__pread64_chk")

CALL("pwrite64", ssize_t, call_pwrite, int fd, const void *from, size_t bytes, off_t offset)
{
	struct iovec buffer = part(from, bytes);

	return SERVE(IO_WRITE, fd, &buffer, 1, offset_given(offset),
		     real.pwrite64(fd, from, bytes, offset));
}
CALL_ALSO("pwrite", "pwrite64")

CALL("readv", ssize_t, call_readv, int fd, const struct iovec *parts, int n)
{
	return SERVE(IO_READ, fd, parts, n, IO_AT_POSITION, real.readv(fd, parts, n));
}

CALL("writev", ssize_t, call_writev, int fd, const struct iovec *parts, int n)
{
	return SERVE(IO_WRITE, fd, parts, n, IO_AT_POSITION, real.writev(fd, parts, n));
}

CALL("preadv64", ssize_t, call_preadv, int fd, const struct iovec *parts, int n, off_t offset)
{
	return SERVE(IO_READ, fd, parts, n, offset_given(offset),
		     real.preadv64(fd, parts, n, offset));
}
CALL_ALSO("preadv", "preadv64")

CALL("pwritev64", ssize_t, call_pwritev, int fd, const struct iovec *parts, int n, off_t offset)
{
	return SERVE(IO_WRITE, fd, parts, n, offset_given(offset),
		     real.pwritev64(fd, parts, n, offset));
}
CALL_ALSO("pwritev", "pwritev64")

/* Here an offset of -1 means the descriptor's position. The kernel interprets the flags. */
static off_t offset_position(off_t offset)
{
	return offset == -1 ? IO_AT_POSITION : offset;
}

CALL("preadv64v2", ssize_t, call_preadv2, int fd, const struct iovec *parts, int n, off_t offset,
     int flags)
{
	if (flags)
		return real_need(), real.preadv64v2(fd, parts, n, offset, flags);
	return SERVE(IO_READ, fd, parts, n, offset_position(offset),
		     real.preadv64v2(fd, parts, n, offset, flags));
}
CALL_ALSO("preadv2", "preadv64v2")

CALL("pwritev64v2", ssize_t, call_pwritev2, int fd, const struct iovec *parts, int n, off_t offset,
     int flags)
{
	if (flags)
		return real_need(), real.pwritev64v2(fd, parts, n, offset, flags);
	return SERVE(IO_WRITE, fd, parts, n, offset_position(offset),
		     real.pwritev64v2(fd, parts, n, offset, flags));
}
CALL_ALSO("pwritev2", "pwritev64v2")
