/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/io.h"
#include "fs/extents/extents_copy.h"
#include "fs/file/internal.h"
#include "fs/object/host_pin.h"

#define STEP (4ULL << 20)
/* Registering the buffer with a GPU costs about a millisecond. */
#define PIN_WORTH (64ULL << 20)

/* Two halves: the CPU fills or drains a half while DMA moves the other half. Allocated at first
 * use. */
struct bounce {
	const struct file_call *call;
	char *half[2]; /* NULL before the first use */
	uint64_t step;
	uint64_t bytes; /* expected in all */
	bool pinned;
};

int bounce_new(const struct file_call *call, uint64_t bytes, struct bounce **bounce)
{
	struct bounce *new_bounce = calloc(1, sizeof(*new_bounce));

	if (!new_bounce)
		return -ENOMEM;
	new_bounce->call = call;
	new_bounce->bytes = bytes;
	new_bounce->step = bytes < STEP ? align_up(bytes, POOL_BLOCK_MIN) : STEP;
	*bounce = new_bounce;
	return 0;
}

static int halves_make(struct bounce *bounce)
{
	uint64_t step = bounce->step;

	if (bounce->half[0])
		return 0;
	char *memory =
	    mmap(NULL, 2 * step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	bounce->half[0] = memory;
	bounce->half[1] = memory + step;
	bounce->pinned =
	    bounce->bytes >= PIN_WORTH && copier_pin(bounce->call->copier, memory, 2 * step) == 0;
	return 0;
}

void bounce_free(struct bounce *bounce)
{
	if (!bounce)
		return;
	if (bounce->pinned)
		copier_unpin(bounce->call->copier, bounce->half[0]);
	if (bounce->half[0])
		munmap(bounce->half[0], 2 * bounce->step);
	free(bounce);
}

/* Bytes beyond the end of the object are zero. */
static int half_read(int fd, char *to, uint64_t bytes, uint64_t offset)
{
	uint64_t n_read = 0;
	int rc = io_read_at(fd, to, bytes, offset, &n_read);

	if (rc == 0)
		memset(to + n_read, 0, bytes - n_read);
	return rc;
}

enum direction { INTO_DEVICE, OUT_OF_DEVICE };

/* A program may have written into a hole of the object after memory was allocated for the object's
 * data: no memory is there. */
static int copy_enqueue(const struct file_call *call, enum direction direction, char *memory,
			enum copy_path path, const struct extents *extents, uint64_t offset,
			uint64_t bytes)
{
	return direction == INTO_DEVICE
		   ? extents_in(call->copier, extents, offset, memory, bytes, path)
		   : extents_out(call->copier, memory, extents, offset, bytes, path);
}

/* Copies within a single window: 1, 0 if there is no window, or -errno. */
static int bounce_through_window(const struct bounce *bounce, enum direction direction,
				 struct file *file, uint64_t file_offset,
				 const struct extents *extents, uint64_t offset, uint64_t bytes)
{
	struct extents_walk walk = extents_walk(extents, offset, offset + bytes);
	struct host_windows *windows = file ? atomic_load(&file->volume)->windows : NULL;
	struct host_range range = {.file = file, .offset = file_offset, .bytes = bytes};
	struct host_window *window;
	struct segment first;

	if (!windows || !extents_next(&walk, &first) || !first.span)
		return 0;
	range.fd = atomic_load(&file->object.fd);
	char *memory = host_window_enter(windows, &range, first.span->chunk->device, &window);

	if (!memory)
		return 0;
	int rc = copy_enqueue(bounce->call, direction, memory, COPY_DMA, extents, offset, bytes);
	rc = device_wait(bounce->call, rc);
	host_window_leave(windows, window);
	return rc < 0 ? rc : 1;
}

static uint64_t window_bytes_left(uint64_t offset, uint64_t bytes)
{
	uint64_t window_left = HOST_WINDOW_BYTES - offset % HOST_WINDOW_BYTES;

	return bytes < window_left ? bytes : window_left;
}

static uint64_t bounce_step(const struct bounce *bounce, uint64_t n_copied, uint64_t bytes)
{
	return bytes - n_copied < bounce->step ? bytes - n_copied : bounce->step;
}

static int bounce_halves_in(struct bounce *bounce, int fd, uint64_t fd_offset,
			    const struct extents *to, uint64_t to_offset, uint64_t bytes)
{
	const struct file_call *call = bounce->call;
	unsigned index = 0;
	int rc = halves_make(bounce);

	for (uint64_t n_copied = 0, step; rc == 0 && n_copied < bytes;
	     n_copied += step, index ^= 1) {
		step = bounce_step(bounce, n_copied, bytes);
		rc = half_read(fd, bounce->half[index], step, fd_offset + n_copied);
		rc = device_wait(call, rc); /* the other half is free from here on */
		if (rc == 0)
			rc = copy_enqueue(call, INTO_DEVICE, bounce->half[index],
					  device_copy_path(call), to, to_offset + n_copied, step);
	}
	return device_wait(call, rc);
}

int bounce_in(struct bounce *bounce, struct file *from, uint64_t from_offset,
	      const struct extents *to, uint64_t to_offset, uint64_t bytes)
{
	int fd = atomic_load(&from->object.fd), rc = 0;

	for (uint64_t n_copied = 0, part; rc >= 0 && n_copied < bytes; n_copied += part) {
		part = window_bytes_left(from_offset + n_copied, bytes - n_copied);
		rc = bounce_through_window(bounce, INTO_DEVICE, from, from_offset + n_copied, to,
					   to_offset + n_copied, part);
		if (rc == 0)
			rc = bounce_halves_in(bounce, fd, from_offset + n_copied, to,
					      to_offset + n_copied, part);
	}
	return rc < 0 ? rc : 0;
}

static int bounce_halves_out(struct bounce *bounce, const struct extents *from,
			     uint64_t from_offset, int fd, uint64_t fd_offset, uint64_t bytes,
			     uint64_t *written)
{
	const struct file_call *call = bounce->call;
	const char *full = NULL;
	uint64_t full_bytes = 0, full_offset = 0;
	unsigned index = 0;
	int rc = halves_make(bounce);

	for (uint64_t n_copied = 0; rc == 0 && (n_copied < bytes || full); index ^= 1) {
		uint64_t step = bounce_step(bounce, n_copied, bytes);

		if (step)
			rc = copy_enqueue(call, OUT_OF_DEVICE, bounce->half[index],
					  device_copy_path(call), from, from_offset + n_copied,
					  step);
		if (rc == 0 && full)
			rc = io_write_at(fd, full, full_bytes, full_offset, written);
		rc = device_wait(call, rc);
		full = step ? bounce->half[index] : NULL;
		full_bytes = step;
		full_offset = fd_offset + n_copied;
		n_copied += step;
	}
	return rc;
}

int bounce_out(struct bounce *bounce, const struct extents *from, uint64_t from_offset,
	       struct file *to, int fd, uint64_t fd_offset, uint64_t bytes, uint64_t *written)
{
	int rc = 0;

	for (uint64_t n_copied = 0, part; rc >= 0 && n_copied < bytes; n_copied += part) {
		part = window_bytes_left(fd_offset + n_copied, bytes - n_copied);
		rc = bounce_through_window(bounce, OUT_OF_DEVICE, to, fd_offset + n_copied, from,
					   from_offset + n_copied, part);
		if (rc > 0)
			*written += part;
		if (rc == 0)
			rc = bounce_halves_out(bounce, from, from_offset + n_copied, fd,
					       fd_offset + n_copied, part, written);
	}
	return rc < 0 ? rc : 0;
}
