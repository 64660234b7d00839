/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Packets from the daemon, checked. Pure but for the descriptors, which are closed unless a layout
 * takes them over: what comes in is believed only when it is exactly as the protocol says. */
#ifndef CLIENT_CORE_ANSWER_H
#define CLIENT_CORE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/protocol.h"

#define CLIENT_CHUNK_ALIGN (2ULL << 20)
/* More chunks than this are no file of ours; an endless answer ends here. */
#define CLIENT_CHUNKS_MAX (1U << 20)

struct client_chunk {
	uint64_t offset, bytes;
	int fd;
};

/* What a lease covers. */
struct client_layout {
	uint64_t lease;
	uint64_t size;	/* of the file, at most what the chunks hold */
	uint64_t bytes; /* that the chunks hold */
	uint32_t kind, flags, device;
	uint8_t uuid[16];
	struct client_chunk *chunks;
	uint32_t n_chunks;
};

/* As received. The descriptors are the packet's until something takes them. */
struct client_packet {
	int fds[GPUMEM_FDS_MAX];
	unsigned n_fds;
	size_t bytes;
	union {
		struct gpumem_msg_header header;
		struct gpumem_msg_layout layout;
		struct gpumem_msg_error error;
		struct gpumem_msg_key key;
		/* One byte more than the longest, to see what is longer. */
		char bytes[sizeof(struct gpumem_msg_layout) +
			   GPUMEM_CHUNKS_PER_MESSAGE * sizeof(struct gpumem_chunk) + 1];
	} u;
};

void client_packet_close(struct client_packet *packet);

/* Adds a layout packet to the layout, which has first_chunk chunks; *more says whether another
 * packet follows. An answer's first packet fills everything in, on an empty layout; with lease set
 * the packet must be of that lease, kind and GPU. 0; the errno of an error packet, with the
 * daemon's text; -EPROTO; -ENOMEM. After an error the layout has what it had. */
int client_answer_layout(struct client_packet *packet, uint32_t request,
			 struct client_layout *layout, bool *more);

/* The key of the connection; else as above. */
int client_answer_key(struct client_packet *packet, uint32_t request,
		      uint8_t key[GPUMEM_KEY_BYTES]);

/* 0 for GPUMEM_MSG_DONE; else as above. */
int client_answer_done(struct client_packet *packet, uint32_t request);

/* Drops the chunks from number first on. */
void client_layout_cut(struct client_layout *layout, uint32_t first);

#endif
