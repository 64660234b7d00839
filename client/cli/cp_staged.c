/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: a part of a file by way of staging memory. One copy is the CPU's, between the file
 * elsewhere and that memory; the other is the GPU's. */
#include <errno.h>
#include <sys/stat.h>

#include "client/cli/buffer.h"
#include "client/cli/cp.h"

/* For the mount that the file is on; false: there cannot be any. */
static bool have_staging(struct cp_buffers *buffers, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	if (buffers->staging_device != st.st_dev) {
		client_staging_close(&buffers->staging);
		buffers->staging_device = st.st_dev;
		client_staging_open(fd, CP_PART_STAGED, &buffers->staging);
	}
	return buffers->staging.fd >= 0;
}

static void put(struct cp_file *file, const struct client_staging *staging, uint64_t offset,
		uint64_t bytes)
{
	int error = cp_read(file, staging->base, bytes, offset);

	if (error) {
		cp_file_fail(file, file->from, error);
		return;
	}
	ssize_t n = client_staging_put(staging, 0, file->out, offset, bytes);

	/* What keeps the rest from being copied is said by a write. */
	if (n >= 0 && (uint64_t)n < bytes)
		n = buffer_write(file->out, staging->base + n, bytes - (uint64_t)n,
				 offset + (uint64_t)n);
	if (n < 0)
		cp_file_fail(file, file->to, (int)-n);
}

static void get(struct cp_file *file, const struct client_staging *staging, uint64_t offset,
		uint64_t bytes)
{
	ssize_t n = client_staging_get(staging, 0, file->in, offset, bytes);

	if (n < 0 || (uint64_t)n < bytes) {
		cp_file_fail(file, file->from, n < 0 ? (int)-n : ESTALE);
		return;
	}
	int error = buffer_write(file->out, staging->base, bytes, offset);

	if (error)
		cp_file_fail(file, file->to, -error);
}

bool cp_staged(struct cp_file *file, struct cp_buffers *buffers, uint64_t offset, uint64_t bytes)
{
	if (!have_staging(buffers, file->into_mount ? file->out : file->in))
		return false;
	if (file->into_mount)
		put(file, &buffers->staging, offset, bytes);
	else
		get(file, &buffers->staging, offset, bytes);
	return true;
}
