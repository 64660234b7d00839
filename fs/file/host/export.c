/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in host/: the descriptor of the object that a lease gives. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "fs/file/host/host.h"

/* Opens the object anew, because a duplicated descriptor would share access mode and flags:
 * O_APPEND set by a sharer would send the daemon's own writes to the end. The object has mode 0600,
 * so only root can reopen a read-only descriptor for writing. */
int host_export(struct file *file, struct journal *journal, enum file_share_access access,
		uint64_t size, uint32_t first, struct file_chunk *chunks, uint32_t max)
{
	int object = atomic_load(&file->object.fd);
	char path[32];

	(void)journal;
	if (object < 0 || first > 0 || max == 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", object);
	*chunks = (struct file_chunk){.bytes = size};
	chunks->fd = open(path, O_CLOEXEC | (access == FILE_SHARE_WRITE ? O_RDWR : O_RDONLY));
	return chunks->fd < 0 ? -errno : 1;
}
