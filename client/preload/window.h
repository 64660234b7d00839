/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Decides when a file's reads and writes justify a lease and a mapping. Callers hold the slot's
 * write lock. */
#ifndef CLIENT_PRELOAD_WINDOW_H
#define CLIENT_PRELOAD_WINDOW_H

#include "client/preload/slot.h"

/* A small call counts for as many bytes as take the time of a request to the daemon, which a window
 * saves. */
#define WINDOW_CALL_WEIGHT (64ULL << 10)

/* The number of calls left to the kernel after a window gave way. */
#define WINDOW_PAUSE 16

/* The use of a file through the kernel that justifies: looking at the file; opening a way to a
 * GPU's BAR, which takes up to a second; a mapping when the way is open. GPUMEM_PRELOAD_AFTER
 * replaces all three. */
#define WINDOW_USE_FIRST (4ULL << 20)
#define WINDOW_USE_OPEN	 (256ULL << 20)
#define WINDOW_USE_GPU	 (16ULL << 20)

/* Below this size a lease would take more memory than the file has, for files that other processes
 * could no longer shorten. */
#define WINDOW_SIZE_MIN (2ULL << 20)

void window_start(void);

/* The use of a file from which window_follow must be called. */
uint64_t window_use_first(void);

/* Finds the kind of the file's mount, unless that is known. False: the file gets no window. */
bool window_look(struct slot *slot, int fd);

/* Opens a window, or extends the window after the kernel moved bytes up to end. */
void window_follow(struct slot *slot, int fd, uint64_t end);
void window_close(struct slot *slot);

#endif
