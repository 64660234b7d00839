/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp out of the mount: the GPU copies into staging memory, and a write takes it from there.
 */
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
		if (client_staging_open(fd, CP_PART_STAGED, &buffers->staging) == 0)
			client_staging_touch(&buffers->staging, 0, CP_PART_STAGED);
	}
	return buffers->staging.fd >= 0;
}

bool cp_staged(struct cp_file *file, struct cp_buffers *buffers, uint64_t part)
{
	uint64_t offset = part * file->part_bytes, bytes = cp_part_bytes(file, part);

	if (!have_staging(buffers, file->in))
		return false;
	ssize_t n = client_staging_get(&buffers->staging, 0, file->in, offset, bytes);

	if (n < 0 || (uint64_t)n < bytes) {
		cp_file_fail(file, file->from, n < 0 ? (int)-n : ESTALE);
		return true;
	}
	int error = buffer_write(file->out, buffers->staging.base, bytes, offset);

	if (error)
		cp_file_fail(file, file->to, -error);
	return true;
}
