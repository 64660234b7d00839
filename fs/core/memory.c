/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/memory.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *memory_populate(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	/* Forbid moves. While the kernel moves a page (NUMA balancing, or a larger page) the page
	 * is missing for a moment, and a daemon killed in that moment fails its request. */
	syscall(SYS_mbind, memory, bytes, MPOL_LOCAL, NULL, 0, 0);
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	/* If the kernel refuses (RLIMIT_MEMLOCK), only the protection from swap is lost. */
	mlock(memory, bytes);
	return memory;
}

void memory_free(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, bytes);
}
