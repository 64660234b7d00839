/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Large reads of streams. The C library's own calls cannot be replaced, so such a read is made on
 * the stream's descriptor, between two uses of the stream, as POSIX allows: fflush(3) before moves
 * the descriptor to the stream's position, and after it the stream starts from the descriptor's. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdio_ext.h>

#include "client/preload/core/calls.h"
#include "client/preload/io.h"
#include "client/preload/slot.h"
#include "client/preload/stage.h"

/* A macro of libc, which would replace the member of real. */
#undef fread_unlocked

/* Under the stream's lock. A stream with a character that the program has pushed back has other
 * bytes than its file. */
static bool stream_may_be_served(FILE *stream)
{
	return !feof_unlocked(stream) && !__fwriting(stream) && !stream->_IO_save_base &&
	       slot_of(fileno_unlocked(stream)) && fflush_unlocked(stream) == 0;
}

/* Under the stream's lock. How many bytes were read. */
static size_t stream_read_direct(FILE *stream, void *to, size_t bytes)
{
	struct iovec part = {.iov_base = to, .iov_len = bytes};
	struct io_call call = {IO_READ, fileno_unlocked(stream), &part, 1, IO_AT_POSITION};
	ssize_t answer;

	return io_direct(&call, &answer) && answer > 0 ? (size_t)answer : 0;
}

/* Counts what the C library reads as a use of the file. */
static size_t stream_read_real(FILE *stream, void *to, size_t bytes)
{
	size_t n = real.fread_unlocked(to, 1, bytes, stream);
	int error = errno;
	struct iovec part = {.iov_base = to, .iov_len = n};
	struct io_call call = {IO_READ, fileno_unlocked(stream), &part, 1, IO_AT_POSITION};

	if (n >= STAGE_CALL_MIN)
		io_was_left(&call, (ssize_t)n);
	errno = error;
	return n;
}

static bool read_is_large(size_t size, size_t n)
{
	size_t bytes;

	return !own_inside && !__builtin_mul_overflow(size, n, &bytes) && bytes >= STAGE_CALL_MIN;
}

/* Under the stream's lock. */
static size_t stream_read(FILE *stream, char *to, size_t size, size_t n)
{
	int error = errno;
	size_t bytes = size * n, bytes_read = 0;

	if (stream_may_be_served(stream))
		bytes_read = stream_read_direct(stream, to, bytes);
	errno = error;
	if (bytes_read < bytes)
		bytes_read += stream_read_real(stream, to + bytes_read, bytes - bytes_read);
	return bytes_read / size;
}

static void stream_unlock(void *stream)
{
	funlockfile(stream);
}

CALL("fread", size_t, call_fread, void *to, size_t size, size_t n, FILE *stream)
{
	size_t answer;

	real_need();
	if (!read_is_large(size, n))
		return real.fread(to, size, n, stream);
	flockfile(stream);
	pthread_cleanup_push(stream_unlock, stream);
	answer = stream_read(stream, to, size, n);
	pthread_cleanup_pop(true);
	return answer;
}

CALL("fread_unlocked", size_t, call_fread_unlocked, void *to, size_t size, size_t n, FILE *stream)
{
	real_need();
	if (!read_is_large(size, n))
		return real.fread_unlocked(to, size, n, stream);
	return stream_read(stream, to, size, n);
}

/* Where the room is too small, the C library ends the program. */
static bool room_has(size_t room, size_t size, size_t n)
{
	size_t bytes;

	return !__builtin_mul_overflow(size, n, &bytes) && bytes <= room;
}

CALL("__fread_chk", size_t, call_fread_chk, void *to, size_t room, size_t size, size_t n,
     FILE *stream)
{
	real_need();
	if (!room_has(room, size, n))
		return real.__fread_chk(to, room, size, n, stream);
	return call_fread(to, size, n, stream);
}

CALL("__fread_unlocked_chk", size_t, call_fread_unlocked_chk, void *to, size_t room, size_t size,
     size_t n, FILE *stream)
{
	real_need();
	if (!room_has(room, size, n))
		return real.__fread_unlocked_chk(to, room, size, n, stream);
	return call_fread_unlocked(to, size, n, stream);
}
