/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: copies or verifies a part of a file. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "client/cli/hash/hash.h"
#include "common/cleanup.h"
#include "common/io.h"

static void part_mark(struct cp_file *file, uint64_t part, const char *data, uint64_t bytes)
{
	if (file->sums && data) {
		file->sums[part] = hash_bytes(data, bytes);
		atomic_store(&file->marks[part], CP_HASHED);
	} else {
		atomic_store(&file->marks[part], CP_DONE);
	}
}

static void range_copy(struct cp_file *file, char *buffer, uint64_t offset, uint64_t bytes)
{
	if (cp_mapped_fill(file, offset, bytes, file->in, offset))
		return;
	int error = cp_read(file, buffer, bytes, offset);

	if (error) {
		cp_file_fail(file, file->from.path, error);
		return;
	}
	error = io_write_at(file->out, buffer, bytes, offset, NULL);
	if (error)
		cp_file_fail(file, file->to.path, -error);
}

/* Copies only the data of a sparse part, so that holes stay holes. */
static void range_copy_sparse(struct cp_file *file, char *buffer, uint64_t offset, uint64_t end)
{
	while (offset < end && !atomic_load(&file->error)) {
		off_t data = lseek(file->in, (off_t)offset, SEEK_DATA);

		if (data < 0 && errno == ENXIO)
			return;
		off_t hole = data < 0 ? -1 : lseek(file->in, data, SEEK_HOLE);

		if (hole < 0) { /* SEEK_HOLE is not supported: all bytes are data */
			range_copy(file, buffer, offset, end - offset);
			return;
		}
		uint64_t stop = (uint64_t)hole < end ? (uint64_t)hole : end;

		if ((uint64_t)data < stop)
			range_copy(file, buffer, (uint64_t)data, stop - (uint64_t)data);
		offset = stop > (uint64_t)data ? stop : end;
	}
}

/* Copies in steps of the buffer's size. */
static void range_copy_buffered(struct cp_file *file, char *buffer, uint64_t offset, uint64_t end)
{
	for (uint64_t bytes; offset < end && !atomic_load(&file->error); offset += bytes) {
		bytes = end - offset < CP_PART ? end - offset : CP_PART;
		range_copy(file, buffer, offset, bytes);
	}
}

static bool part_copy_range(struct cp *cp, struct cp_file *file, struct cp_buffers *buffers)
{
	uint64_t part = atomic_fetch_add(&file->next, 1);

	if (part >= file->parts)
		return false;
	uint64_t start = part * file->part_bytes, end = start + cp_part_bytes(file, part);
	const char *whole = NULL;

	if (file->sparse) {
		range_copy_sparse(file, buffers->data, start, end);
	} else if (file->step == CP_BUFFER || !cp_staged(cp, file, buffers, part)) {
		if (cp_room_await(cp, file))
			range_copy_buffered(file, buffers->data, start, end);
		whole = file->step == CP_BUFFER ? buffers->data : NULL;
	}
	if (atomic_load(&file->error))
		return false;
	part_mark(file, part, whole, end - start);
	atomic_fetch_add(&cp->bytes_done, end - start);
	return true;
}

/* The kernel or the daemon cannot copy between the two files, so this process copies. */
static bool error_needs_buffer(int error)
{
	return error == EXDEV || error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
}

static bool part_copy_on_mount(struct cp *cp, struct cp_file *file, char *buffer)
{
	uint64_t part = atomic_fetch_add(&file->next, 1);

	if (part >= file->parts)
		return false;
	uint64_t at = part * CP_PART_ON_MOUNT, end = cp_part_end(file, part, CP_PART_ON_MOUNT);

	while (at < end && !atomic_load(&file->error) && !cp_stopped(cp)) {
		off_t in = (off_t)at, out = (off_t)at;
		ssize_t n = copy_file_range(file->in, &in, file->out, &out, end - at, 0);
		int error = n < 0 ? errno : n == 0 ? ESTALE : 0;

		if (error == EINTR)
			continue;
		if (error_needs_buffer(error)) {
			n = (ssize_t)(end - at < CP_PART ? end - at : CP_PART);
			range_copy(file, buffer, at, (uint64_t)n);
		} else if (error) {
			cp_file_fail(file, error == ESTALE ? file->from.path : file->to.path,
				     error);
		}
		if (n > 0) {
			at += (uint64_t)n;
			atomic_fetch_add(&cp->bytes_done, (uint64_t)n);
		}
	}
	if (at < end) {
		cp_file_fail(file, file->from.path, EINTR);
		return false;
	}
	part_mark(file, part, NULL, 0);
	return true;
}

/* Waits for the pipe. False: a signal asks cp to end. */
static bool pipe_wait(const struct cp_file *file)
{
	struct pollfd ready[2] = {{.fd = file->in, .events = POLLIN},
				  {.fd = cp_signal_fd, .events = POLLIN}};

	while (poll(ready, 2, -1) < 0 && errno == EINTR)
		;
	return !ready[1].revents;
}

/* Reads CP_PART bytes, or fewer at the end or after an error, which is in *error. */
static uint64_t pipe_read(struct cp_file *file, char *to, int *error)
{
	uint64_t n_read = 0;

	while (n_read < CP_PART && pipe_wait(file)) {
		ssize_t n = read(file->in, to + n_read, CP_PART - n_read);

		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			*error = errno;
		if (n <= 0)
			break;
		n_read += (uint64_t)n;
	}
	return n_read;
}

static bool part_copy_stream(struct cp *cp, struct cp_file *file, char *buffer)
{
	int error = 0;

	pthread_mutex_lock(&file->stream);
	uint64_t part = atomic_load(&file->next), offset = file->size;
	bool ended = part >= file->parts;
	uint64_t bytes = ended ? 0 : pipe_read(file, buffer, &error);

	if (!ended && bytes)
		error = error ? error : cp_marks_reserve(file, part + 1, cp->options.verify);
	if (!error && bytes)
		part_mark(file, part, buffer, bytes);
	file->size += bytes;
	if (bytes < CP_PART && !cp_stopped(cp))
		file->parts = part + (bytes > 0);
	if (bytes)
		atomic_fetch_add(&file->next, 1);
	pthread_mutex_unlock(&file->stream);
	if (error) {
		cp_file_fail(file, file->from.path ? file->from.path : "standard input", error);
		return false;
	}
	if (!bytes)
		return false;
	error = -io_write_at(file->out, buffer, bytes, offset, NULL);
	if (error)
		cp_file_fail(file, file->to.path, error);
	atomic_fetch_add(&cp->bytes_done, bytes);
	return !error;
}

/* The sum of the source's part: known from the copy, or of the bytes read again. */
static int part_source_sum(struct cp_file *file, uint64_t part, char *buffer, uint64_t bytes,
			   uint64_t *sum)
{
	if (file->method != CP_ON_MOUNT && atomic_load(&file->marks[part]) == CP_HASHED) {
		*sum = file->sums[part];
		return 0;
	}
	int error = cp_read(file, buffer, bytes, part * CP_PART);

	if (!error)
		*sum = hash_bytes(buffer, bytes);
	return error;
}

static bool part_verify(struct cp *cp, struct cp_file *file, const struct cp_buffers *buffers)
{
	uint64_t part = atomic_fetch_add(&file->next, 1), source_sum = 0;

	if (part >= file->parts)
		return false;
	uint64_t bytes = cp_part_end(file, part, CP_PART) - part * CP_PART;
	int error = part_source_sum(file, part, buffers->source, bytes, &source_sum);

	if (error) {
		cp_file_fail(file, file->from.path, error);
		return false;
	}
	uint64_t n_read = 0;

	error = -io_read_at(file->out, buffers->data, bytes, part * CP_PART, &n_read);
	if (error)
		cp_file_fail(file, file->to.path, error);
	else if (n_read != bytes || hash_bytes(buffers->data, bytes) != source_sum)
		cp_file_fail(file, file->to.path, EBADMSG);
	atomic_fetch_add(&cp->bytes_verified, bytes);
	return !atomic_load(&file->error);
}

bool cp_part(struct cp *cp, struct cp_file *file, struct cp_buffers *buffers)
{
	if (file->phase == CP_VERIFYING)
		return part_verify(cp, file, buffers);
	switch (file->method) {
	case CP_STREAM:
		return part_copy_stream(cp, file, buffers->data);
	case CP_ON_MOUNT:
		return part_copy_on_mount(cp, file, buffers->data);
	default:
		return part_copy_range(cp, file, buffers);
	}
}
