/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Feeds libgpumem the answer of a daemon. The first byte of the input is the number of descriptors
 * that come with the answer; the rest is packets, each after two bytes with its length. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/core/answer.h"

#define REQUEST 1

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An accepted layout is a contiguous range from offset 0, with a descriptor for each chunk. */
static void check(const struct client_layout *layout)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < layout->n_chunks; i++) {
		if (layout->chunks[i].offset != at || layout->chunks[i].fd < 0 ||
		    (layout->kind != GPUMEM_KIND_HOST &&
		     (layout->chunks[i].bytes == 0 ||
		      layout->chunks[i].bytes % CLIENT_CHUNK_ALIGN)))
			abort();
		at += layout->chunks[i].bytes;
	}
	if (at != layout->bytes || layout->size > at || at > INT64_MAX)
		abort();
}

static bool notice_is_bad(const struct gpumem_msg_notice *notice)
{
	switch (notice->what) {
	case GPUMEM_NOTICE_PARK:
	case GPUMEM_NOTICE_UNPARK:
		return notice->flags > GPUMEM_NOTICE_NOW || notice->bytes || notice->device;
	case GPUMEM_NOTICE_MEMORY:
		return notice->flags || notice->inode;
	case GPUMEM_NOTICE_RECALL:
	case GPUMEM_NOTICE_END:
		return notice->flags || !notice->inode || notice->bytes || notice->device;
	default:
		return true;
	}
}

/* An accepted notice has no field that its kind does not have. */
static void check_notice(const uint8_t *data, size_t bytes)
{
	struct gpumem_msg_notice notice;
	void *packet = malloc(bytes ? bytes : 1);

	if (!packet)
		return;
	memcpy(packet, data, bytes);
	if (client_answer_notice(packet, bytes, &notice) == 0 &&
	    (bytes != sizeof(notice) || notice_is_bad(&notice)))
		abort();
	free(packet);
}

static void take(struct client_packet *packet, const uint8_t *data, size_t bytes, unsigned n_fds,
		 int object)
{
	memcpy(packet->u.bytes, data, bytes);
	packet->bytes = bytes;
	for (packet->n_fds = 0; packet->n_fds < n_fds; packet->n_fds++)
		packet->fds[packet->n_fds] = dup(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int object = -1;
	struct client_layout layout = {0};
	struct client_packet *packet = calloc(1, sizeof(*packet));
	bool more = true;
	size_t at = 1;

	if (object < 0) {
		object = memfd_create("chunk", MFD_CLOEXEC);
		if (object < 0 || ftruncate(object, 8LL << 20) < 0)
			abort();
	}
	while (packet && size >= 3 && at + 2 <= size && more) {
		size_t bytes = data[at] | data[at + 1] << 8;
		at += 2;
		if (bytes > size - at)
			bytes = size - at;
		if (bytes > sizeof(packet->u.bytes))
			bytes = sizeof(packet->u.bytes);
		memset(&packet->u, 0xee, sizeof(packet->u));
		check_notice(data + at, bytes);
		take(packet, data + at, bytes, data[0] % 8, object);
		at += bytes;
		if (client_answer_layout(packet, REQUEST, &layout, &more) < 0)
			more = false;
		if (packet->n_fds)
			abort();
		check(&layout);
	}
	client_layout_cut(&layout, 0);
	free(packet);
	return 0;
}
