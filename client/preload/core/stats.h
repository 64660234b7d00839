/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Counts the calls that the library served directly, and the calls left to the kernel, by reason.
 * GPUMEM_PRELOAD_STATS=1 prints the counts when the process ends. */
#ifndef CLIENT_PRELOAD_CORE_STATS_H
#define CLIENT_PRELOAD_CORE_STATS_H

#include <stdint.h>

/* Calls and bytes. */
enum stats_served {
	SERVED_MAP,
	SERVED_READ,
	SERVED_WRITE,
	SERVED_COPY, /* by the GPU, out of a mapping */
	SERVED_END,
};

/* Calls on files of gpumemfs that the kernel served. */
enum stats_left {
	LEFT_WARMING,	  /* not used enough yet */
	LEFT_RIGHTS,	  /* no right to the memory itself */
	LEFT_CACHED,	  /* the page cache is used */
	LEFT_SPARSE,	  /* holes would be filled, or the file is small */
	LEFT_GROWING,	  /* beyond the memory that is mapped */
	LEFT_APPEND,	  /* O_APPEND */
	LEFT_SLOW,	  /* a load through the BAR is slower */
	LEFT_KIND,	  /* only the kernel can make such a mapping */
	LEFT_END_OF_FILE, /* a mapping beyond the end of the file */
	LEFT_WINDOW,	  /* a mapping of a small part of a large file */
	LEFT_SMALL,	  /* a private mapping, for which a lease costs more than it saves */
	LEFT_TIMES,	  /* to update the file's times */
	LEFT_FAILED,	  /* no lease, or no way to map the file */
	LEFT_CHANGED,	  /* the program has stored into its private mapping */
	LEFT_BUSY,	  /* another thread is changing the mapping */
	LEFT_REASONS,
};

/* From the constructor, before the other functions. */
void stats_start(void);
void stats_serve(enum stats_served kind, uint64_t bytes);
void stats_leave(enum stats_left reason);
/* Making or extending a direct mapping took so much time. */
void stats_window(int64_t ns);
/* In a child of fork(2). */
void stats_forked(void);
void stats_print(void);

#endif
