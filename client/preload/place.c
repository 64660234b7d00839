/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/place.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/core/private_fd.h"
#include "client/lib/file.h"
#include "client/preload/core/real.h"
#include "common/cleanup.h"

char *place_reserve(char *address, size_t bytes, int flags)
{
	int fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);

	return real.mmap64(address, bytes, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
}

/* System memory can be mapped twice. A BAR mapping cannot, and is moved away; a reservation keeps
 * its old addresses for libgpumem's unmap. */
static int pages_move(struct mapping *mapping, char *from, size_t bytes, char *to)
{
	if (real.mremap(from, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED)
		return 0;
	if (real.mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
		return -errno;
	char *reservation = place_reserve(from, bytes, MAP_FIXED_NOREPLACE);
	if (reservation != MAP_FAILED && reservation != from)
		real.munmap(reservation, bytes);
	mapping->stuck = mapping->stuck || reservation != from;
	return 0;
}

/* A driver may refuse to show the moved mapping elsewhere. A system call that reads the page then
 * gives EFAULT, where the program would crash. This call has no effect, as there is no operation
 * -1, and needs no descriptor of the program's table. */
static int page_prove(const char *address)
{
	long rc = syscall(SYS_rt_sigprocmask, -1, address, NULL, sizeof(uint64_t));

	return rc < 0 && errno == EINVAL ? 0 : -EFAULT;
}

/* The program may be reading at these addresses: a mapping is proved elsewhere first. */
static int gpu_pages_move(struct mapping *mapping, char *from, size_t bytes, char *to)
{
	char *scratch = place_reserve(NULL, bytes, 0);

	if (scratch == MAP_FAILED)
		return -errno;
	int rc = pages_move(mapping, from, bytes, scratch);
	if (rc == 0)
		rc = page_prove(scratch);
	if (rc == 0 &&
	    real.mremap(scratch, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
		rc = -errno;
	if (rc < 0)
		real.munmap(scratch, bytes);
	return rc;
}

int place_direct(const struct range *range)
{
	const struct client_layout *layout = &range->mapping->file->layout;
	char *base = range->mapping->file->host.range.base;
	uint64_t end = range->offset + range->bytes;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < layout->n_chunks; i++) {
		const struct client_chunk *chunk = &layout->chunks[i];
		uint64_t from = chunk->offset > range->offset ? chunk->offset : range->offset;
		uint64_t to =
		    chunk->offset + chunk->bytes < end ? chunk->offset + chunk->bytes : end;
		if (from >= to)
			continue;
		char *at = range->start + (from - range->offset);
		rc = range->mapping->on_gpu
			 ? gpu_pages_move(range->mapping, base + from, to - from, at)
			 : pages_move(range->mapping, base + from, to - from, at);
	}
	if (rc == 0 && real.mprotect(range->start, range->bytes, range->protection) < 0)
		rc = -errno;
	return rc;
}

static int kernel_map(int fd, void *argument)
{
	const struct range *range = argument;
	int flags = (range->shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED;

	return real.mmap64(range->start, range->bytes, range->protection, flags, fd,
			   (off_t)range->offset) == MAP_FAILED
		   ? -errno
		   : 0;
}

int place_kernel(const struct range *range, enum place_by method)
{
	int flags = range->shared && range->may_write ? O_RDWR : O_RDONLY;
	struct range copy = *range;
	char path[BENEATH_THROUGH_MAX];

	if (method == PLACE_PRIVATE_TABLE)
		return client_private_fd(range->mapping->file->fd, flags, kernel_map, &copy);
	AUTO_CLOSE int fd =
	    real.open64(beneath_through(range->mapping->file->fd, path), flags | O_CLOEXEC);
	return fd < 0 ? -errno : kernel_map(fd, &copy);
}
