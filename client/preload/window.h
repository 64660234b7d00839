/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* When a file is worth a lease and a mapping for its reads and writes. Callers hold the slot's lock
 * for writing. */
#ifndef CLIENT_PRELOAD_WINDOW_H
#define CLIENT_PRELOAD_WINDOW_H

#include "client/preload/slot.h"

/* A small call saves a round trip to the daemon: it counts for as many bytes as take that long. */
#define WINDOW_CALL_WEIGHT (64ULL << 10)

/* After a window gave way the next calls are the kernel's. */
#define WINDOW_REST 16

/* The use of a file by the kernel that is worth a look at it; the one that is worth the opening of
 * a way to a GPU's BAR, which takes up to a second, and which is worth a mapping when that is
 * there. GPUMEM_PRELOAD_AFTER replaces them all. */
#define WINDOW_USE_FIRST (4ULL << 20)
#define WINDOW_USE_OPEN	 (256ULL << 20)
#define WINDOW_USE_GPU	 (16ULL << 20)

/* Below this a lease would take more memory than the file has, for files that others can no longer
 * shorten. */
#define WINDOW_SIZE_MIN (2ULL << 20)

void window_start(void);

/* The use of a file from which window_follow is to be called. */
uint64_t window_first_look(void);

/* Opens a window, or makes it follow the file when the kernel moved bytes up to end. */
void window_follow(struct slot *slot, int fd, uint64_t end);
void window_close(struct slot *slot);

#endif
