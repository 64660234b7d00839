/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/stream/stream.h"
#include "client/lib/file.h"
#include "client/preload/core/file_stats.h"
#include "client/preload/core/own.h"
#include "client/preload/core/real.h"
#include "client/preload/readers.h"
#include "client/preload/slot.h"
#include "client/preload/stage.h"
#include "common/clock.h"

/* Reads up to this size use streaming loads (0.9 GB/s): a request to the daemon with a copy by the
 * GPU takes 12 us and more. */
#define BAR_READ_MAX (8 << 10)

/* The kernel's requests are at most so large. */
#define REQUEST_MAX (1 << 20)

/* From this size on a system call is faster than stores that fault. */
#define SYSTEM_CALL_MIN (64 << 10)

/* Linux moves at most so many bytes in one call. */
#define CALL_MAX (INT_MAX & ~4095)

/* A read updates atime if atime is a second old; relatime asks for less. */
#define ACCESS_TICK_NS 1000000000

static size_t call_bytes(const struct io_call *call)
{
	size_t total = 0;

	if (call->n_parts < 0 || call->n_parts > IOV_MAX)
		return 0;
	for (int i = 0; i < call->n_parts; i++) {
		if (call->parts[i].iov_len > CALL_MAX - total)
			return 0;
		total += call->parts[i].iov_len;
	}
	return total;
}

/* The clock of the kernel's timestamps, which advances a few hundred times a second. The daemon's
 * timestamps advance as rarely, and each update costs a call. */
static int64_t tick_now(void)
{
	return clock_ns_of(CLOCK_REALTIME_COARSE);
}

static bool end_within_limit(uint64_t end)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
	       (limit.rlim_cur == RLIM_INFINITY || end <= limit.rlim_cur);
}

/* Under the slot's lock. Whether the window can serve the call; if not, *reason says why. */
static bool slot_may_read(const struct slot *slot, int mode, uint64_t end, size_t bytes,
			  enum stats_left *reason)
{
	if ((mode & O_ACCMODE) == O_WRONLY)
		return false;
	*reason = LEFT_SLOW;
	if (slot->kind == ACCESS_GPU && bytes > BAR_READ_MAX)
		return false;
	*reason = LEFT_GROWING;
	if (end > atomic_load(&slot->size) || end > slot->bytes)
		return false;
	*reason = LEFT_TIMES;
	int64_t accessed = atomic_load(&((struct slot *)slot)->accessed), now = tick_now();
	return accessed && now >= accessed && now - accessed < ACCESS_TICK_NS;
}

static bool slot_may_write(const struct slot *slot, int mode, uint64_t offset, uint64_t end,
			   enum stats_left *reason)
{
	*reason = LEFT_RIGHTS;
	if ((mode & O_ACCMODE) == O_RDONLY || !slot->writable)
		return false;
	*reason = LEFT_APPEND;
	if (mode & O_APPEND)
		return false;
	*reason = LEFT_GROWING;
	return offset <= atomic_load(&slot->size) && end <= slot->bytes && end_within_limit(end);
}

static bool slot_may_serve(const struct slot *slot, const struct io_call *call, off_t offset,
			   size_t bytes, enum stats_left *reason)
{
	int mode = fcntl(call->fd, F_GETFL);
	uint64_t end;

	*reason = LEFT_GROWING;
	if (mode < 0 || mode & O_PATH || offset < 0 ||
	    __builtin_add_overflow((uint64_t)offset, bytes, &end))
		return false;
	return call->direction == IO_READ
		   ? slot_may_read(slot, mode, end, bytes, reason)
		   : slot_may_write(slot, mode, (uint64_t)offset, end, reason);
}

static void window_load(const struct slot *slot, const struct io_call *call, off_t offset)
{
	const char *from = slot->base + offset;

	for (int i = 0; i < call->n_parts; from += call->parts[i++].iov_len) {
		if (slot->kind == ACCESS_GPU)
			stream_load(call->parts[i].iov_base, from, call->parts[i].iov_len);
		else
			memcpy(call->parts[i].iov_base, from, call->parts[i].iov_len);
	}
}

/* Stores into system memory by a system call, which allocates new pages without clearing them first
 * and without a fault for each page. */
static bool window_store_system(const struct slot *slot, const char *from, size_t bytes,
				uint64_t offset)
{
	const struct client_layout *layout = &slot->file->layout;

	for (uint32_t i = 0; i < layout->n_chunks && bytes; i++) {
		const struct client_chunk *chunk = &layout->chunks[i];
		if (offset >= chunk->offset + chunk->bytes)
			continue;
		uint64_t remaining = chunk->offset + chunk->bytes - offset;
		size_t part = remaining < bytes ? remaining : bytes;
		if (real.pwrite64(chunk->fd, from, part, (off_t)(offset - chunk->offset)) !=
		    (ssize_t)part)
			return false;
		from += part;
		offset += part;
		bytes -= part;
	}
	return bytes == 0;
}

static bool window_store(const struct slot *slot, const struct io_call *call, off_t offset)
{
	bool stored = true;

	for (int i = 0; stored && i < call->n_parts; offset += (off_t)call->parts[i++].iov_len) {
		const void *from = call->parts[i].iov_base;
		size_t bytes = call->parts[i].iov_len;
		if (slot->kind == ACCESS_GPU)
			stream_store(slot->base + offset, from, bytes);
		else if (bytes >= SYSTEM_CALL_MIN)
			stored = window_store_system(slot, from, bytes, (uint64_t)offset);
		else
			memcpy(slot->base + offset, from, bytes);
	}
	stream_fence();
	return stored;
}

static const char *call_last_byte(const struct io_call *call)
{
	int i = call->n_parts - 1;

	while (call->parts[i].iov_len == 0)
		i--;
	return (const char *)call->parts[i].iov_base + call->parts[i].iov_len - 1;
}

static void value_raise(atomic_uint_fast64_t *value, uint64_t to)
{
	uint64_t now = atomic_load(value);

	while (now < to && !atomic_compare_exchange_weak(value, &now, to))
		;
}

/* Lets the kernel write the last byte once more: this sets the file's size and times and removes
 * set-id bits. The bytes are stored before, so that no reader sees zeros at the end. */
static bool file_update_end(struct slot *slot, const struct io_call *call, uint64_t end)
{
	int64_t now = tick_now();

	if (end <= atomic_load(&slot->size) && atomic_load(&slot->written) == now)
		return true;
	if (real.pwrite64(call->fd, call_last_byte(call), 1, (off_t)end - 1) != 1)
		return false;
	value_raise(&slot->size, end);
	atomic_store(&slot->written, now);
	atomic_store(&slot->accessed, 0); /* relatime: an atime older than mtime is updated */
	return true;
}

/* The library or the kernel moved the bytes. */
static void call_count_file(const struct io_call *call, uint64_t bytes)
{
	file_stats_add(call->fd, call->direction == IO_READ ? MANNER_READ : MANNER_WRITTEN, bytes);
}

/* The library moved the bytes. */
static void call_count(const struct io_call *call, size_t bytes)
{
	stats_serve(call->direction == IO_READ ? SERVED_READ : SERVED_WRITE, bytes);
	call_count_file(call, bytes);
}

static bool window_move(struct slot *slot, const struct io_call *call, off_t offset, size_t bytes)
{
	if (call->direction == IO_READ)
		window_load(slot, call, offset);
	else if (!window_store(slot, call, offset) ||
		 !file_update_end(slot, call, (uint64_t)offset + bytes))
		return false;
	call_count(call, bytes);
	return true;
}

static ssize_t call_by_kernel(const struct io_call *call, off_t offset)
{
	if (call->direction == IO_READ)
		return real.preadv64(call->fd, call->parts, call->n_parts, offset);
	return real.pwritev64(call->fd, call->parts, call->n_parts, offset);
}

/* The bytes of the call that the file has. */
static size_t file_bytes(int fd, off_t offset, size_t bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || offset >= st.st_size)
		return 0;
	return bytes < (size_t)(st.st_size - offset) ? bytes : (size_t)(st.st_size - offset);
}

/* The kernel sends all requests of such a read at once (fs/ops/open.c). */
static bool kernel_reads_at_once(int mode, size_t bytes)
{
	return mode & O_DIRECT && (mode & O_ACCMODE) == O_RDONLY && bytes > REQUEST_MAX;
}

/* How many bytes of the call may be moved by system calls on the file, for which the daemon checks
 * rights and keeps size and times. 0: none. */
static size_t slot_may_stage(const struct slot *slot, const struct io_call *call, off_t offset,
			     size_t bytes)
{
	bool can = bytes >= STAGE_CALL_MIN && slot->kind == ACCESS_GPU && !slot->refused &&
		   (stage_is_for(slot) || readers_are_for(call, bytes));
	int mode = can ? fcntl(call->fd, F_GETFL) : -1;
	uint64_t end;

	if (mode < 0 || mode & O_PATH || offset < 0 ||
	    __builtin_add_overflow((uint64_t)offset, bytes, &end))
		return 0;
	if (call->direction == IO_WRITE)
		return (mode & O_ACCMODE) != O_RDONLY && !(mode & O_APPEND) && end_within_limit(end)
			   ? bytes
			   : 0;
	if ((mode & O_ACCMODE) == O_WRONLY || kernel_reads_at_once(mode, bytes))
		return 0;
	return file_bytes(call->fd, offset, bytes);
}

/* A descriptor that refers to another file meanwhile has given the threads that one's bytes. */
static bool call_move(const struct slot *slot, const struct io_call *call, off_t offset,
		      size_t bytes)
{
	if (readers_are_for(call, bytes))
		return readers_move(call, offset, bytes) && slot_is_of(slot, call->fd);
	return bytes >= STAGE_CALL_MIN && stage_is_for(slot) && stage_move(call, offset, bytes);
}

/* The number of bytes moved; 0: none. */
static size_t call_stage(struct slot *slot, const struct io_call *call, off_t offset, size_t bytes)
{
	size_t staged = slot_may_stage(slot, call, offset, bytes);

	if (staged == 0 || !call_move(slot, call, offset, staged))
		return 0;
	atomic_store(&slot->accessed, call->direction == IO_READ ? tick_now() : 0);
	if (call->direction == IO_WRITE)
		atomic_store(&slot->written, tick_now());
	if (call->direction == IO_WRITE && slot->file)
		value_raise(&slot->size, (uint64_t)offset + staged);
	call_count(call, staged);
	return staged;
}

/* Moves bytes by staging, or else through the window. The number of bytes moved; 0: none. */
static size_t call_direct(struct slot *slot, const struct io_call *call, off_t offset, size_t bytes,
			  enum stats_left *reason)
{
	size_t moved = call_stage(slot, call, offset, bytes);

	if (moved == 0 && slot->file && slot_may_serve(slot, call, offset, bytes, reason) &&
	    window_move(slot, call, offset, bytes))
		moved = bytes;
	return moved;
}

static bool call_at_offset(struct slot *slot, const struct io_call *call, size_t bytes,
			   ssize_t *answer, enum stats_left *reason)
{
	*answer = (ssize_t)call_direct(slot, call, call->offset, bytes, reason);
	return *answer > 0;
}

/* Moves the position first, in one step, so that no other user of the descriptor, in this process
 * or another, gets the same range. From then on the bytes belong to that range, also if the kernel
 * moves them. */
static bool call_at_position(struct slot *slot, const struct io_call *call, size_t bytes,
			     ssize_t *answer, enum stats_left *reason)
{
	off_t now = lseek(call->fd, 0, SEEK_CUR);

	if (!slot_may_stage(slot, call, now, bytes) &&
	    !(slot->file && slot_may_serve(slot, call, now, bytes, reason)))
		return false;
	off_t offset = lseek(call->fd, (off_t)bytes, SEEK_CUR) - (off_t)bytes;
	if (offset < 0)
		return false;
	*answer = (ssize_t)call_direct(slot, call, offset, bytes, reason);
	bool direct = *answer > 0;
	if (!direct)
		*answer = call_by_kernel(call, offset);
	int error = errno;
	if (!direct && *answer > 0)
		call_count_file(call, (uint64_t)*answer);
	if (*answer < (ssize_t)bytes)
		lseek(call->fd, (*answer > 0 ? *answer : 0) - (off_t)bytes, SEEK_CUR);
	if (!direct)
		stats_leave(*reason);
	errno = error;
	return true;
}

static bool call_serve(struct slot *slot, const struct io_call *call, size_t bytes, ssize_t *answer)
{
	enum stats_left reason = slot->refused ? slot->reason : LEFT_WARMING;

	if ((slot->file || stage_is_for(slot) || readers_are_for(call, bytes)) &&
	    (call->offset == IO_AT_POSITION ? call_at_position(slot, call, bytes, answer, &reason)
					    : call_at_offset(slot, call, bytes, answer, &reason)))
		return true;
	stats_leave(reason);
	return false;
}

bool io_direct(const struct io_call *call, ssize_t *answer)
{
	struct slot *slot = slot_of(call->fd);
	size_t bytes = slot ? call_bytes(call) : 0;
	int error = errno;

	if (bytes == 0)
		return false;
	if (readers_are_for(call, bytes))
		slot_look(slot, call->fd);
	INSIDE();
	if (!slot_enter(slot, call->fd)) {
		stats_leave(LEFT_BUSY);
		errno = error;
		return false;
	}
	*answer = 0;
	bool served = call_serve(slot, call, bytes, answer);
	slot_leave(slot);
	if (!served || *answer >= 0)
		errno = error;
	return served;
}

/* Such calls justify no window, which would not serve them, and staging memory is there or cannot
 * be. */
static bool call_is_beyond_window(const struct slot *slot, const struct io_call *call, size_t bytes)
{
	return call->direction == IO_READ && bytes > BAR_READ_MAX && slot->kind == ACCESS_GPU &&
	       stage_was_tried();
}

void io_was_left(const struct io_call *call, ssize_t answer)
{
	struct slot *slot = answer > 0 ? slot_of(call->fd) : NULL;
	int error = errno;

	if (!slot)
		return;
	call_count_file(call, (uint64_t)answer);
	off_t end =
	    call->offset == IO_AT_POSITION ? lseek(call->fd, 0, SEEK_CUR) : call->offset + answer;
	atomic_store(call->direction == IO_READ ? &slot->accessed : &slot->written, tick_now());
	if (call->direction == IO_WRITE)
		atomic_store(&slot->accessed, 0);
	if (!call_is_beyond_window(slot, call, (size_t)answer))
		slot_used(slot, call->fd, (uint64_t)answer, end > 0 ? (uint64_t)end : 0);
	errno = error;
}
