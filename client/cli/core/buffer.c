/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/buffer.h"

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

/* Sixteen threads saturate PCIe 5.0 x16, except for their other work: finding memory for a file, or
 * computing sums. With fewer than two threads nothing overlaps. */
#define THREADS_MAX 32
#define THREADS_MIN 2

void *buffer_new(size_t bytes)
{
	void *buffer =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buffer == MAP_FAILED)
		return NULL;
	madvise(buffer, bytes, MADV_HUGEPAGE);
	return buffer;
}

void buffer_free(void *buffer, size_t bytes)
{
	if (buffer)
		munmap(buffer, bytes);
}

ssize_t buffer_read(int fd, void *to, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int buffer_write(int fd, const void *from, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n =
		    pwrite(fd, (const char *)from + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENOSPC;
		done += (size_t)n;
	}
	return 0;
}

unsigned buffer_threads(void)
{
	cpu_set_t set;
	int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : THREADS_MAX;

	return cores > THREADS_MAX   ? THREADS_MAX
	       : cores < THREADS_MIN ? THREADS_MIN
				     : (unsigned)cores;
}
