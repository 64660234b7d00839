/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Several threads for a large read of a GPU's file. The kernel sends a read(2) as requests of
 * 1 MiB, one after the other; the daemon answers as many at once as there are. */
#ifndef CLIENT_PRELOAD_READERS_H
#define CLIENT_PRELOAD_READERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "client/preload/io.h"

/* Threads take 0.1 ms to start; the kernel alone reads so much in 1 ms. */
#define READERS_CALL_MIN (4UL << 20)

void readers_start(void);

/* Whether the call is a read for readers_move. */
bool readers_are_for(const struct io_call *call, size_t bytes);

/* Does a pread(2) of so many bytes, which the file has. False: the kernel must do the call from its
 * start. */
bool readers_move(const struct io_call *call, off_t offset, size_t bytes);

#endif
