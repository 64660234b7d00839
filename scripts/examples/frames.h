/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What a producer and a consumer of frames agree on.
 *
 * The frames lie in one file, in slots. A slot belongs to one side at a time: the producer fills it
 * and sends a notice over a Unix socket (SOCK_SEQPACKET), the consumer uses the frame where it
 * lies, and sends the same notice back. So nobody reads what is being written, no byte is copied,
 * and neither side polls.
 *
 * The order of memory follows from that, on every CPU: gpumem_flush() lets the stores out to the
 * GPU, and a send and the receive of it are system calls that no load or store passes. */
#ifndef FRAMES_H
#define FRAMES_H

#include <stdint.h>

enum {
	FRAME_WIDTH = 1920,
	FRAME_HEIGHT = 1080,
	FRAME_PIXELS_AT = 4096, /* in the slot, behind the header: a page's beginning */
	FRAME_SLOT = FRAME_PIXELS_AT + ((FRAME_WIDTH * FRAME_HEIGHT + 4095) & ~4095),
	FRAME_SLOTS = 4
};

/* At the beginning of a slot. */
struct frame_header {
	uint64_t sequence;	/* from 1; frames that nobody had a slot for are missing */
	uint64_t time;		/* of CLOCK_MONOTONIC, in nanoseconds */
	uint32_t width, height; /* pixels of a byte each, row after row */
};

/* sequence 0: the producer is done. Without that, the end of the connection is a producer that
 * died. */
struct frame_notice {
	uint64_t sequence;
	uint64_t offset; /* of the slot in the file */
};

#endif
