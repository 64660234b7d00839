/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp out of the mount into a file on tmpfs. The kernel runs one write(2) into a file at a
 * time, so one processor allocates and fills the file's memory. A read(2) into a mapping of the
 * file does the same work without the file's lock, on all processors.
 *
 * This process never touches the mapping itself: if tmpfs is full or the file was truncated, a
 * store would be SIGBUS, and read(2) just ends early. */
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "common/io.h"

/* For fewer bytes, making and removing a mapping takes longer than writing. */
#define MAPPED_MIN ((uint64_t)16 << 20)
/* A read into a mapping takes half as much again of a processor's time as a write, so a mapping is
 * worthwhile if more than two threads would wait for each other. */
#define CROWD 3

void cp_mapped_begin(const struct cp *cp, struct cp_file *file)
{
	struct statfs fs;

	/* Verification computes sums of the bytes in a buffer. */
	if (cp->options.verify || cp->options.threads < CROWD || file->size < MAPPED_MIN ||
	    fstatfs(file->out, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return;
	void *mapped = mmap(NULL, file->size, PROT_READ | PROT_WRITE, MAP_SHARED, file->out, 0);

	if (mapped == MAP_FAILED)
		return;
	/* For a tmpfs with huge=advise. Holes may be smaller than huge pages. */
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
	uint64_t page_offset = offset % (uint64_t)sysconf(_SC_PAGESIZE);
	char *to = file->mapped + offset;

	/* Allocates the pages at once: in the read, each fault would take the lock on the process's
	 * addresses. The read reports a failure. */
	madvise(to - page_offset, page_offset + bytes, MADV_POPULATE_WRITE);
	uint64_t n_read = 0;
	int rc = io_read_at(from, to, bytes, at, &n_read);

	/* Removes the pages from the mapping, not from the file: in the end, one thread would have
	 * to remove all page tables. */
	madvise(to - page_offset, page_offset + bytes, MADV_DONTNEED);
	return rc == 0 && n_read == bytes;
}
