/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What was served directly, and what was left to the kernel and why. GPUMEM_PRELOAD_STATS=1 prints
 * it when the process ends. */
#ifndef CLIENT_PRELOAD_STATS_H
#define CLIENT_PRELOAD_STATS_H

#include <stdint.h>

/* Calls and bytes. */
enum stats_served {
	SERVED_MAP,
	SERVED_READ,
	SERVED_WRITE,
	SERVED_END,
};

/* Calls on files of gpumemfs that went to the kernel. */
enum stats_left {
	LEFT_WARMING,	  /* not used enough yet */
	LEFT_RIGHTS,	  /* no right to the memory itself */
	LEFT_CACHED,	  /* the page cache is in play */
	LEFT_SPARSE,	  /* holes would be filled, or the file is small */
	LEFT_GROWING,	  /* beyond the memory that is mapped */
	LEFT_APPEND,	  /* O_APPEND */
	LEFT_SLOW,	  /* a load through the BAR is slower */
	LEFT_KIND,	  /* a mapping of a kind that only the kernel has */
	LEFT_END_OF_FILE, /* a mapping beyond the end of the file */
	LEFT_WINDOW,	  /* a mapping of a small part of a large file */
	LEFT_SMALL,	  /* a private mapping, for which a lease costs more than it saves */
	LEFT_TIMES,	  /* so that times change */
	LEFT_FAILED,	  /* no lease, or no way to map it */
	LEFT_BUSY,	  /* another thread is changing the mapping */
	LEFT_REASONS,
};

/* From the constructor, before any other. */
void stats_start(void);
void stats_serve(enum stats_served what, uint64_t bytes);
void stats_leave(enum stats_left why);
/* A direct mapping was made, or made larger, in so much time. */
void stats_window(int64_t ns);
/* In a child of fork. */
void stats_forked(void);
void stats_print(void);

#endif
