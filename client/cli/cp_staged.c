/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp out of the mount: the GPU copies into staging memory, and a read or a write takes it
 * from there. */
#include <errno.h>
#include <sys/stat.h>

#include "client/cli/buffer.h"
#include "client/cli/cp.h"

bool cp_staging_for(struct cp_staging *staging, int fd, uint64_t bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	if (staging->device != st.st_dev) {
		client_staging_close(&staging->memory);
		staging->device = st.st_dev;
		staging->fresh = client_staging_open(fd, bytes, &staging->memory) == 0;
	}
	return staging->memory.fd >= 0;
}

bool cp_staged(struct cp_file *file, struct cp_buffers *buffers, uint64_t part)
{
	uint64_t offset = part * file->part_bytes, bytes = cp_part_bytes(file, part);

	struct cp_staging *staging = &buffers->staging;

	if (!cp_staging_for(staging, file->in, CP_PART_STAGED))
		return false;
	if (staging->fresh)
		client_staging_touch(&staging->memory, 0, CP_PART_STAGED);
	staging->fresh = false;
	ssize_t n = client_staging_get(&staging->memory, 0, file->in, offset, bytes);

	if (n < 0 || (uint64_t)n < bytes) {
		cp_file_fail(file, file->from, n < 0 ? (int)-n : ESTALE);
		return true;
	}
	if (cp_mapped_fill(file, offset, bytes, staging->memory.object, 0))
		return true;
	int error = buffer_write(file->out, staging->memory.base, bytes, offset);

	if (error)
		cp_file_fail(file, file->to, -error);
	return true;
}
