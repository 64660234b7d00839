/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/device_file.h"
#include "fs/host_file.h"

#define STEP (4ULL << 20)
/* Registering the buffer with a GPU costs about a millisecond. */
#define PIN_WORTH (64ULL << 20)

/* Two halves: one is filled or drained while DMA moves the other. */
struct bounce {
	const struct file_call *call;
	char *half[2];
	uint64_t step;
	bool pinned;
};

int bounce_new(const struct file_call *call, uint64_t bytes, struct bounce **bounce)
{
	uint64_t step = bytes < STEP ? align_up(bytes, POOL_BLOCK_MIN) : STEP;
	struct bounce *made = calloc(1, sizeof(*made));

	if (!made)
		return -ENOMEM;
	made->call = call;
	made->step = step;
	made->half[0] =
	    mmap(NULL, 2 * step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (made->half[0] == MAP_FAILED) {
		free(made);
		return -ENOMEM;
	}
	made->half[1] = made->half[0] + step;
	made->pinned = bytes >= PIN_WORTH && copier_pin(call->copier, made->half[0], 2 * step) == 0;
	*bounce = made;
	return 0;
}

void bounce_free(struct bounce *bounce)
{
	if (!bounce)
		return;
	if (bounce->pinned)
		copier_unpin(bounce->call->copier, bounce->half[0]);
	munmap(bounce->half[0], 2 * bounce->step);
	free(bounce);
}

static int read_half(int fd, char *to, uint64_t bytes, uint64_t offset)
{
	uint64_t done = 0;

	while (done < bytes) {
		ssize_t n = pread(fd, to + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (uint64_t)n;
	}
	memset(to + done, 0, bytes - done);
	return 0;
}

enum direction { INTO_DEVICE, OUT_OF_DEVICE };

static int move_half(struct bounce *bounce, enum direction direction, char *half,
		     const struct extents *extents, uint64_t offset, uint64_t bytes)
{
	struct extents_walk walk = extents_walk(extents, offset, offset + bytes);
	const struct file_call *call = bounce->call;
	struct segment segment;
	int rc = 0;

	while (rc == 0 && extents_next(&walk, &segment)) {
		char *at = half + (segment.offset - offset);

		/* Somebody wrote into a hole of the object since memory was taken for its data. */
		if (!segment.span)
			continue;
		if (direction == INTO_DEVICE)
			rc = copy_in(call->copier, segment.span, segment.into, at, segment.bytes,
				     device_copy_path(call));
		else
			rc = copy_out(call->copier, at, segment.span, segment.into, segment.bytes,
				      device_copy_path(call));
	}
	return rc;
}

static uint64_t step_at(const struct bounce *bounce, uint64_t done, uint64_t bytes)
{
	return bytes - done < bounce->step ? bytes - done : bounce->step;
}

int bounce_in(struct bounce *bounce, int fd, uint64_t fd_offset, const struct extents *to,
	      uint64_t to_offset, uint64_t bytes)
{
	unsigned which = 0;
	int rc = 0;

	for (uint64_t done = 0, step; rc == 0 && done < bytes; done += step, which ^= 1) {
		step = step_at(bounce, done, bytes);
		rc = read_half(fd, bounce->half[which], step, fd_offset + done);
		rc = device_wait(bounce->call, rc); /* the other half is free from here on */
		if (rc == 0)
			rc = move_half(bounce, INTO_DEVICE, bounce->half[which], to,
				       to_offset + done, step);
	}
	return device_wait(bounce->call, rc);
}

int bounce_out(struct bounce *bounce, const struct extents *from, uint64_t from_offset, int fd,
	       uint64_t fd_offset, uint64_t bytes, uint64_t *written)
{
	const char *full = NULL;
	uint64_t full_bytes = 0, full_offset = 0;
	unsigned which = 0;
	int rc = 0;

	for (uint64_t done = 0; rc == 0 && (done < bytes || full); which ^= 1) {
		uint64_t step = step_at(bounce, done, bytes);

		if (step)
			rc = move_half(bounce, OUT_OF_DEVICE, bounce->half[which], from,
				       from_offset + done, step);
		if (rc == 0 && full)
			rc = host_write_all(fd, full, full_bytes, full_offset, written);
		rc = device_wait(bounce->call, rc);
		full = step ? bounce->half[which] : NULL;
		full_bytes = step;
		full_offset = fd_offset + done;
		done += step;
	}
	return rc;
}
