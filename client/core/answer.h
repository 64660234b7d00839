/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Checks the daemon's packets and builds layouts from them. A packet is used only if every field is
 * as the protocol says. The functions have no side effects but on descriptors: a packet's
 * descriptors are closed unless a layout takes them over. */
#ifndef CLIENT_CORE_ANSWER_H
#define CLIENT_CORE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/protocol.h"
#include "common/system/ipc_memory.h"

#define CLIENT_CHUNK_ALIGN (2ULL << 20)
/* The limit for a layout: no file of gpumemfs has more chunks, and an answer without end stops
 * here. */
#define CLIENT_CHUNKS_MAX (1U << 20)

struct client_chunk {
	uint64_t offset; /* in the chunks together */
	uint64_t bytes;
	int fd;
	uint64_t imported; /* the vendor's handle, of device_prepare; 0: none */
};

/* The memory that a lease covers. */
struct client_layout {
	uint64_t lease;
	uint64_t size;	/* of the file, at most the sum of the chunks */
	uint64_t bytes; /* sum of the chunks */
	uint64_t skip;	/* of the first chunk, before the file's first byte */
	uint32_t kind, flags, device;
	uint8_t uuid[16];
	struct client_chunk *chunks;
	uint32_t n_chunks;
};

/* A packet as received. The packet owns the descriptors until a layout takes them over. */
struct client_packet {
	int fds[GPUMEM_FDS_MAX];
	unsigned n_fds;
	size_t bytes;
	union {
		struct gpumem_msg_header header;
		struct gpumem_msg_layout layout;
		struct gpumem_msg_error error;
		struct gpumem_msg_key key;
		/* A byte more than the longest packet has, to detect longer packets. */
		char bytes[sizeof(struct gpumem_msg_layout) +
			   GPUMEM_CHUNKS_PER_MESSAGE * sizeof(struct gpumem_chunk) + 1];
	} u;
};

void client_packet_close(struct client_packet *packet);

/* Adds a layout packet to the layout, behind its chunks; sets *has_more if the file has more
 * chunks. On an empty layout the packet fills in all fields; if lease is set, the packet must have
 * the same lease, kind and GPU. Gives 0, the errno of an error packet with the daemon's text,
 * -EPROTO or -ENOMEM. After an error the layout is as before. */
int client_answer_layout(struct client_packet *packet, uint32_t request,
			 struct client_layout *layout, bool *has_more);

/* Fails with the daemon's error, and its text. */
int client_refused(int error);

/* Reads the key of the connection. Errors as above. */
int client_answer_key(struct client_packet *packet, uint32_t request,
		      uint8_t key[GPUMEM_KEY_BYTES]);

/* Gives 0 for GPUMEM_MSG_DONE. Errors as above. */
int client_answer_done(struct client_packet *packet, uint32_t request);

/* Checks a packet that comes unasked over a connection for notices: 0 with the notice; 1 for
 * GPUMEM_MSG_DONE, the answer to GPUMEM_MSG_LISTEN; -EPROTO. */
int client_answer_notice(const void *packet, size_t bytes, struct gpumem_msg_notice *notice);

/* Whether the memory is an allocation of another process's cudaMalloc; then *memory is that. */
bool client_layout_of_malloc(const struct client_layout *layout, struct ipc_memory *memory);
/* Drops the chunks from number first on. */
void client_layout_cut(struct client_layout *layout, uint32_t first);

#endif
