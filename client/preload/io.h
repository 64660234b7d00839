/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Reads and writes through a file's window. */
#ifndef CLIENT_PRELOAD_IO_H
#define CLIENT_PRELOAD_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The call uses the descriptor's own position. */
#define IO_AT_POSITION INT64_MIN

enum io_direction { IO_READ, IO_WRITE };

struct io_call {
	enum io_direction direction;
	int fd;
	const struct iovec *parts;
	int n_parts;
	off_t offset; /* or IO_AT_POSITION */
};

/* Serves the call, if possible: true, with *answer and errno as the kernel's would be. */
bool io_direct(const struct io_call *call, ssize_t *answer);

/* Counts a call that the kernel has answered. */
void io_was_left(const struct io_call *call, ssize_t answer);

#endif
