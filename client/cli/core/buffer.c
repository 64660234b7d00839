/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/buffer.h"

#include <sched.h>
#include <sys/mman.h>

/* Sixteen threads saturate PCIe 5.0 x16, except for their other work: finding memory for a file, or
 * computing sums. With fewer than two threads no work overlaps. */
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

unsigned buffer_threads(void)
{
	cpu_set_t set;
	int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : THREADS_MAX;

	return cores > THREADS_MAX   ? THREADS_MAX
	       : cores < THREADS_MIN ? THREADS_MIN
				     : (unsigned)cores;
}
