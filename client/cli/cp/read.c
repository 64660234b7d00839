/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: reads the bytes of a source. */
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "common/io.h"

#define ALIGNMENT ((uint64_t)4096)

/* Reads bytes in the page cache from there, which is faster, and the rest from the disk with
 * O_DIRECT. */
static uint64_t source_read_direct(const struct cp_file *file, char *to, uint64_t bytes,
				   uint64_t offset)
{
	struct iovec vector = {to, bytes};
	ssize_t n = preadv2(file->in, &vector, 1, (off_t)offset, RWF_NOWAIT);
	uint64_t have = n > 0 ? (uint64_t)n & ~(ALIGNMENT - 1) : 0;

	if (n == (ssize_t)bytes)
		return bytes;
	/* O_DIRECT reads whole sectors, also at the end of the file. */
	uint64_t rest = (bytes - have + ALIGNMENT - 1) & ~(ALIGNMENT - 1);

	n = pread(file->in_direct, to + have, rest, (off_t)(offset + have));
	have += n > 0 ? (uint64_t)n : 0;
	return have < bytes ? have : bytes;
}

int cp_read(const struct cp_file *file, char *to, uint64_t bytes, uint64_t offset)
{
	bool direct = file->in_direct >= 0 && offset % ALIGNMENT == 0;
	uint64_t n_read = direct ? source_read_direct(file, to, bytes, offset) : 0;
	/* After a direct read that ended early, sees the error or the end of the file again. */
	int rc = io_read_at(file->in, to + n_read, bytes - n_read, offset + n_read, &n_read);

	return rc < 0 ? -rc : n_read == bytes ? 0 : ESTALE;
}
