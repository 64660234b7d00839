/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What became of each file of a mount: the answer for a user who asks whether a program uses the
 * file's memory or copies of it. With GPUMEM_PRELOAD_STATS=1; otherwise the calls do nothing. */
#ifndef CLIENT_PRELOAD_CORE_FILE_STATS_H
#define CLIENT_PRELOAD_CORE_FILE_STATS_H

#include <stdint.h>

/* In bytes. A mapping counts in full when it is made. */
enum file_stats_manner {
	MANNER_IN_PLACE,   /* mapped: the file's memory itself */
	MANNER_COPIED,	   /* by the GPU, out of a mapping */
	MANNER_PAGE_CACHE, /* mapped by the kernel */
	MANNER_READ,
	MANNER_WRITTEN,
	MANNER_END,
};

/* Further files are only counted. */
#define FILE_STATS_MAX 64

void file_stats_start(void);
/* The descriptor was opened. Files that are not on a mount are left out. */
void file_stats_open(int fd);
/* errno stays. The calling thread is in the library, or has found a slot for the descriptor. */
void file_stats_add(int fd, enum file_stats_manner manner, uint64_t bytes);
/* In a child of fork(2). */
void file_stats_forked(void);
/* Writes a line for each file to the descriptor. */
void file_stats_print(int out);

#endif
