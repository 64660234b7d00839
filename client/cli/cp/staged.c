/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp between the mount and other file systems: the GPU copies from or to staging memory, and
 * a read or write does the rest. Each thread has its own staging memory: while some threads wait
 * for the GPU others read, so the link is always busy. */
#include <errno.h>
#include <sys/stat.h>

#include "client/cli/cp/cp.h"
#include "common/io.h"

/* Opens staging memory on the mount of fd. False: the mount offers none. */
static bool staging_open(struct cp_staging *staging, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	if (staging->device != st.st_dev) {
		client_staging_close(&staging->memory);
		staging->device = st.st_dev;
		staging->touched = false;
		client_staging_open(fd, CP_PART_STAGED, &staging->memory);
	}
	return staging->memory.fd >= 0;
}

/* The mount has no room for staging memory: this thread copies without. False. */
static bool staging_give_up(struct cp_staging *staging)
{
	client_staging_close(&staging->memory);
	return false;
}

static bool part_copy_in(struct cp *cp, struct cp_file *file, struct cp_staging *staging,
			 uint64_t offset, uint64_t bytes)
{
	const struct client_staging *memory = &staging->memory;
	int error = cp_read(file, memory->base, bytes, offset);

	if (error == EFAULT)
		return staging_give_up(staging);
	if (error) {
		cp_file_fail(file, file->from.path, error);
		return true;
	}
	if (!cp_room_await(cp, file))
		return true;
	ssize_t n = client_staging_place(memory, 0, file->out, offset, bytes);
	uint64_t n_copied = n > 0 ? (uint64_t)n : 0;

	/* If the daemon copied only a part, the write reports the error. */
	if (n >= 0 && n_copied < bytes)
		n = io_write_at(file->out, memory->base + n_copied, bytes - n_copied,
				offset + n_copied, NULL);
	if (n < 0)
		cp_file_fail(file, file->to.path, (int)-n);
	return true;
}

static bool part_copy_out(struct cp_file *file, struct cp_staging *staging, uint64_t offset,
			  uint64_t bytes)
{
	const struct client_staging *memory = &staging->memory;

	/* The GPU copies into allocated pages only. */
	if (!staging->touched && client_staging_touch(memory, 0, CP_PART_STAGED) < 0)
		return staging_give_up(staging);
	staging->touched = true;
	ssize_t n = client_staging_get(memory, 0, file->in, offset, bytes);

	if (n < 0 || (uint64_t)n < bytes) {
		cp_file_fail(file, file->from.path, n < 0 ? (int)-n : ESTALE);
		return true;
	}
	if (cp_mapped_fill(file, offset, bytes, memory->object, 0))
		return true;
	int error = io_write_at(file->out, memory->base, bytes, offset, NULL);

	if (error)
		cp_file_fail(file, file->to.path, -error);
	return true;
}

bool cp_staged(struct cp *cp, struct cp_file *file, struct cp_buffers *buffers, uint64_t part)
{
	uint64_t offset = part * file->part_bytes, bytes = cp_part_bytes(file, part);
	struct cp_staging *staging = &buffers->staging;
	bool in = file->step == CP_STAGED_IN;

	return staging_open(staging, in ? file->out : file->in) &&
	       (in ? part_copy_in(cp, file, staging, offset, bytes)
		   : part_copy_out(file, staging, offset, bytes));
}
