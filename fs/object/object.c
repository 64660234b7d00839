/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/object/object.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"

#define COPY_BUFFER (1ULL << 20)

struct object_stat object_stat(int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return (struct object_stat){0};
	return (struct object_stat){
	    .size = (uint64_t)st.st_size,
	    .allocated = (uint64_t)st.st_blocks * 512,
	    .mtime = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec,
	};
}

uint64_t object_size(int fd)
{
	return object_stat(fd).size;
}

uint64_t object_taken(int fd)
{
	return object_stat(fd).allocated;
}

uint64_t object_mtime(int fd)
{
	return object_stat(fd).mtime;
}

bool object_next_run(int fd, uint64_t offset, uint64_t end, struct data_run *run)
{
	if (offset >= end)
		return false;

	off_t data = fd < 0 ? -1 : lseek(fd, (off_t)offset, SEEK_DATA);
	off_t next = data;

	if (data == (off_t)offset)
		next = lseek(fd, (off_t)offset, SEEK_HOLE);
	*run = (struct data_run){
	    .from = offset,
	    .to = next < 0 || (uint64_t)next > end ? end : (uint64_t)next,
	    .data = data == (off_t)offset,
	};
	return true;
}

uint64_t object_hole_bytes(int fd, uint64_t from, uint64_t to)
{
	struct data_run run;
	uint64_t bytes = 0;

	for (; object_next_run(fd, from, to, &run); from = run.to)
		bytes += run.data ? 0 : run.to - run.from;
	return bytes;
}

int object_allocate(int fd, int mode, uint64_t from, uint64_t to)
{
	while (fallocate(fd, mode, (off_t)from, (off_t)(to - from)) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int object_punch(int fd, uint64_t from, uint64_t to)
{
	return object_allocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, to);
}

int object_zero_end(int fd, uint8_t shift)
{
	uint64_t size = object_size(fd), page = 1ULL << shift;

	return size % page ? object_punch(fd, size, (size / page + 1) * page) : 0;
}

/* For copies between the two mounts of system.c, which copy_file_range(2) refuses. */
static int object_copy_by_buffer(int from, uint64_t at, int to, uint64_t target, uint64_t bytes,
				 uint64_t *written)
{
	AUTO_FREE char *buffer = malloc(COPY_BUFFER);
	uint64_t end = at + bytes;
	int rc = 0;

	if (!buffer)
		return -ENOMEM;
	while (rc == 0 && at < end) {
		uint64_t step = end - at < COPY_BUFFER ? end - at : COPY_BUFFER, got = 0;
		int error = io_read_at(from, buffer, step, at, &got);

		rc = io_write_at(to, buffer, got, target, written);
		if (rc == 0 && got < step)
			return error;
		at += got;
		target += got;
	}
	return rc;
}

int object_copy(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t bytes,
		uint64_t *written)
{
	uint64_t n_copied = 0;
	int rc = io_copy_at(from, from_offset, to, to_offset, bytes, &n_copied);

	*written += n_copied;
	if (rc == -EXDEV || rc == -EOPNOTSUPP || rc == -ENOSYS)
		rc = object_copy_by_buffer(from, from_offset + n_copied, to, to_offset + n_copied,
					   bytes - n_copied, written);
	return rc;
}

int object_zero(int fd, uint64_t from, uint64_t to)
{
	static const char zeroes[64 << 10];
	struct data_run run;
	int rc = 0;

	for (; rc == 0 && object_next_run(fd, from, to, &run); from = run.to) {
		uint64_t at = run.data ? run.from : run.to;

		for (uint64_t step; rc == 0 && at < run.to; at += step) {
			step = run.to - at < sizeof(zeroes) ? run.to - at : sizeof(zeroes);
			rc = io_write_at(fd, zeroes, step, at, NULL);
		}
	}
	return rc;
}
