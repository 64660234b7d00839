/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp out of the mount, into a file on tmpfs. The kernel lets one write(2) at a time into a
 * file, so that one processor finds the memory for it and fills it. A read(2) into a mapping of the
 * file has the kernel do the same under no lock of the file, by as many processors as there are.
 *
 * This process never touches the mapping itself: where tmpfs is full, or somebody has cut the file,
 * that would be SIGBUS, and is a read that ends early. */
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "client/cli/core/buffer.h"
#include "client/cli/cp/cp.h"

/* Less is written before a mapping is made and taken apart. */
#define MAPPED_MIN ((uint64_t)16 << 20)
/* A read into a mapping takes half as much again of a processor's time as a write: it pays where
 * more than two would wait for each other. */
#define CROWD 3

void cp_mapped_begin(const struct cp *cp, struct cp_file *file)
{
	struct statfs fs;

	/* What is verified is summed up on its way. */
	if (cp->options.verify || cp->options.threads < CROWD || file->size < MAPPED_MIN ||
	    fstatfs(file->out, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return;
	void *mapped = mmap(NULL, file->size, PROT_READ | PROT_WRITE, MAP_SHARED, file->out, 0);

	if (mapped == MAP_FAILED)
		return;
	/* For a tmpfs that has them for those who ask; holes are smaller. */
	if (!file->sparse)
		madvise(mapped, file->size, MADV_HUGEPAGE);
	file->mapped = mapped;
}

void cp_mapped_end(struct cp_file *file)
{
	if (file->mapped)
		munmap(file->mapped, file->size);
	file->mapped = NULL;
}

bool cp_mapped_fill(const struct cp_file *file, uint64_t offset, uint64_t bytes, int from,
		    uint64_t at)
{
	if (!file->mapped || atomic_load(&file->users) < CROWD)
		return false;
	uint64_t before = offset % (uint64_t)sysconf(_SC_PAGESIZE);
	char *to = file->mapped + offset;

	/* Page by page, the read would lock the process's addresses for each. What cannot be had
	 * here is seen by the read. */
	madvise(to - before, before + bytes, MADV_POPULATE_WRITE);
	ssize_t n = buffer_read(from, to, bytes, at);

	/* The bytes stay in the file. In the end one thread would take all page tables apart. */
	madvise(to - before, before + bytes, MADV_DONTNEED);
	return n >= 0 && (uint64_t)n == bytes;
}
