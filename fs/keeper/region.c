/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/region.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "fs/keeper/fdstore.h"

/* Makes a memfd of zeroes with a filled-in head. */
static int region_create(const struct region_kind *kind)
{
	int fd = memfd_create(kind->name, MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)kind->bytes) == 0 &&
	    pwrite(fd, &kind->head, sizeof(kind->head), 0) == sizeof(kind->head))
		return fd;
	int error = -errno;

	if (fd >= 0)
		close(fd);
	return error;
}

static int region_check(const struct region_kind *kind, int fd)
{
	struct region_head head;

	return lseek(fd, 0, SEEK_END) == (off_t)kind->bytes &&
		       pread(fd, &head, sizeof(head), 0) == sizeof(head) &&
		       memcmp(&head, &kind->head, sizeof(head)) == 0
		   ? 0
		   : -EPROTO;
}

int region_open(struct fdstore *fdstore, uint64_t id, const struct region_kind *kind, void **region)
{
	int found = fdstore_take(fdstore, id);
	AUTO_CLOSE int fd = found == -ENOENT ? region_create(kind) : found;
	int error = fd < 0 ? fd : found < 0 ? 0 : region_check(kind, fd);

	if (error)
		return error;
	void *memory = mmap(NULL, kind->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return -errno;
	if (found < 0)
		error = fdstore_hold(fdstore, id, fd);
	if (error)
		munmap(memory, kind->bytes);
	else
		*region = memory;
	return error;
}
