/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Several threads for the pages of large mappings by the kernel.
 *
 * They fill the pages of a mapping that a program wants filled (MAP_POPULATE), beside the program.
 * The kernel would fill them in the program's own thread, a window of its readahead at a time: that
 * takes 1.4 times as long as from system memory, and by threads of the same process, while the
 * program reads the first pages, 0.85 times (H100, 4 GiB). More than four threads are no faster. */
#ifndef CLIENT_PRELOAD_CORE_FILL_H
#define CLIENT_PRELOAD_CORE_FILL_H

#include <stddef.h>

/* Returns at once. Without threads nothing is filled, and the pages come when they are read. */
void fill_begin(char *address, size_t bytes);

/* Before addresses are unmapped, moved or mapped anew: nothing more is filled there. */
void fill_end(const void *address, size_t bytes);
/* Ends the filling as fill_end, for a calling thread that is in the library. */
void fill_stop(const void *address, size_t bytes);

/* Before a mapping of the kernel's pages ends: takes its pages out, and returns when that is done.
 * For 2.7 GiB that takes 0.10 s, and munmap(2) alone 0.18 (H200). */
void fill_undo(char *address, size_t bytes);

/* In a child of fork(2), which has none of the threads. */
void fill_forked(void);

#endif
