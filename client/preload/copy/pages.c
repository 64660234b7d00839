/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/copy/pages.h"

#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "client/preload/core/real.h"
#include "common/cleanup.h"

/* /proc/self/pagemap: a word for each page. A page that the program has stored into is anonymous
 * memory, present or swapped out; a page of the file has PAGE_FILE or is not there. */
#define PAGE_PRESENT (1ULL << 63)
#define PAGE_SWAPPED (1ULL << 62)
#define PAGE_FILE    (1ULL << 61)

#define WORDS 2048

static bool words_are_of_file(const uint64_t *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (words[i] & (PAGE_PRESENT | PAGE_SWAPPED) && !(words[i] & PAGE_FILE))
			return false;
	return true;
}

bool pages_are_of_file(const void *address, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (uintptr_t)address / page;
	uintptr_t end = ((uintptr_t)address + bytes + page - 1) / page;
	uint64_t words[WORDS];
	AUTO_CLOSE int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	for (uintptr_t at = first, n; map >= 0 && at < end; at += n) {
		n = end - at < WORDS ? end - at : WORDS;
		ssize_t length = (ssize_t)(n * sizeof(*words));
		off_t offset = (off_t)(at * sizeof(*words));
		if (real.pread64(map, words, (size_t)length, offset) != length ||
		    !words_are_of_file(words, n))
			return false;
	}
	return map >= 0;
}
