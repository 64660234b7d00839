/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Reading and writing through a window. */
#ifndef CLIENT_PRELOAD_IO_H
#define CLIENT_PRELOAD_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The position is the descriptor's own. */
#define IO_AT_POSITION INT64_MIN

enum io_direction { IO_READ, IO_WRITE };

struct io_call {
	enum io_direction direction;
	int fd;
	const struct iovec *parts;
	int n_parts;
	off_t offset; /* or IO_AT_POSITION */
};

/* Whether the call has been served; then *answer and errno are what the kernel's would be. */
bool io_direct(const struct io_call *call, ssize_t *answer);

/* After the kernel's answer to a call that was left. */
void io_was_left(const struct io_call *call, ssize_t answer);

#endif
