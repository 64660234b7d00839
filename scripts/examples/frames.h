/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The protocol between a producer and a consumer of frames.
 *
 * The frames lie in one file, in slots. A slot belongs to one side at a time: the producer fills
 * the slot and sends a notice over a Unix socket (SOCK_SEQPACKET); the consumer uses the frame in
 * place, and sends the same notice back. So no side reads a frame while it is written, no byte is
 * copied, and neither side polls.
 *
 * Memory is in order on every CPU: gpumem_flush() completes the stores to the GPU, and no load or
 * store passes the system calls that send and receive a notice. */
#ifndef FRAMES_H
#define FRAMES_H

#include <stdint.h>

enum {
	FRAME_WIDTH = 1920,
	FRAME_HEIGHT = 1080,
	FRAME_PIXELS_AT = 4096, /* in the slot, behind the header: at the start of a page */
	FRAME_SLOT = FRAME_PIXELS_AT + ((FRAME_WIDTH * FRAME_HEIGHT + 4095) & ~4095),
	FRAME_SLOTS = 4
};

/* At the beginning of a slot. */
struct frame_header {
	uint64_t sequence;	/* from 1; frames for which no slot was free are missing */
	uint64_t time;		/* of CLOCK_MONOTONIC, in nanoseconds */
	uint32_t width, height; /* pixels of a byte each, row after row */
};

/* sequence 0: the producer is done. If the connection ends without such a notice, the producer
 * died. */
struct frame_notice {
	uint64_t sequence;
	uint64_t offset; /* of the slot in the file */
};

#endif
