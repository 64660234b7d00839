/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/core/answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/core/error.h"

#define ERRNO_MAX 4095
#define PAGE	  4096ULL

static int packet_malformed(const char *problem)
{
	return client_fail(EPROTO, "invalid answer of the daemon: %s", problem);
}

void client_packet_close(struct client_packet *packet)
{
	for (unsigned i = 0; i < packet->n_fds; i++)
		close(packet->fds[i]);
	packet->n_fds = 0;
}

static void layout_count_bytes(struct client_layout *layout)
{
	layout->bytes = 0;
	if (layout->n_chunks) {
		const struct client_chunk *last = &layout->chunks[layout->n_chunks - 1];
		layout->bytes = last->offset + last->bytes;
	}
}

bool client_layout_of_malloc(const struct client_layout *layout, struct ipc_memory *memory)
{
	return layout->n_chunks == 1 && layout->kind == GPUMEM_KIND_DEVICE &&
	       ipc_memory_read(layout->chunks[0].fd, memory);
}

void client_layout_cut(struct client_layout *layout, uint32_t first)
{
	for (uint32_t i = first; i < layout->n_chunks; i++)
		if (layout->chunks[i].fd >= 0)
			close(layout->chunks[i].fd);
	if (first < layout->n_chunks)
		layout->n_chunks = first;
	layout_count_bytes(layout);
	if (first == 0) {
		free(layout->chunks);
		layout->chunks = NULL;
	}
}

static int packet_check_header(const struct client_packet *packet, uint32_t request)
{
	const struct gpumem_msg_header *header = &packet->u.header;

	if (packet->bytes < sizeof(*header) || header->magic != GPUMEM_MAGIC)
		return packet_malformed("not a message of gpumemfs");
	if (header->version != GPUMEM_PROTOCOL_VERSION)
		return client_fail(EPROTO,
				   "the daemon speaks version %u of the protocol, this is %u",
				   header->version, GPUMEM_PROTOCOL_VERSION);
	if (header->bytes != packet->bytes)
		return packet_malformed("wrong length");
	if (header->request != request)
		return packet_malformed("answers another request");
	return 0;
}

/* The meaning of the daemon's errno for a program that opened a file. */
static const char *refusal_text(int error)
{
	switch (error) {
	case EPERM:
		return "readers are not trusted with the file's memory any more: open it again";
	case ENOENT:
		return "it does not know the lease any more";
	case ENOSPC:
		return "no room to make the file fit for sharing, or for a reader's private copy";
	case EDQUOT:
		return "the quota leaves no room to make the file fit for sharing, or for a "
		       "reader's "
		       "private copy";
	case EMFILE:
		return "too many leases, or no descriptors left";
	case ENOTSUP:
		return "not supported for this file";
	default:
		return NULL;
	}
}

int client_refused(int error)
{
	const char *reason = refusal_text(error);

	return client_fail(error, "the daemon refuses: %s", reason ? reason : strerror(error));
}

static int packet_check_error(const struct client_packet *packet)
{
	const struct gpumem_msg_error *message = &packet->u.error;

	if (packet->bytes != sizeof(*message) || packet->n_fds || message->reserved ||
	    message->error < 1 || message->error > ERRNO_MAX)
		return packet_malformed("invalid error");
	return client_refused(message->error);
}

static int packet_check_fields(const struct gpumem_msg_layout *message, size_t bytes)
{
	const uint32_t flags = GPUMEM_LAYOUT_MORE | GPUMEM_LAYOUT_PRIVATE |
			       GPUMEM_LAYOUT_READ_ONLY | GPUMEM_LAYOUT_DELEGATED;

	if (bytes < sizeof(*message) || message->n_chunks > GPUMEM_CHUNKS_PER_MESSAGE ||
	    bytes != sizeof(*message) + message->n_chunks * sizeof(message->chunks[0]))
		return packet_malformed("chunks and length differ");
	if (message->kind < GPUMEM_KIND_DEVICE || message->kind > GPUMEM_KIND_VULKAN ||
	    message->flags & ~flags || message->reserved || message->lease == 0 ||
	    message->size > INT64_MAX)
		return packet_malformed("invalid value of a field");
	if (message->flags & GPUMEM_LAYOUT_MORE && message->n_chunks == 0)
		return packet_malformed("no chunks, but the file has more");
	if (message->kind == GPUMEM_KIND_HOST &&
	    (message->flags & GPUMEM_LAYOUT_MORE || message->first_chunk > 1 ||
	     message->n_chunks > 1 - message->first_chunk))
		return packet_malformed("system memory has one chunk");
	return 0;
}

/* Checks that the packet continues the layout. */
static int packet_check_position(const struct gpumem_msg_layout *message,
				 const struct client_layout *layout)
{
	if (message->first_chunk != layout->n_chunks ||
	    message->n_chunks > CLIENT_CHUNKS_MAX - layout->n_chunks)
		return packet_malformed("chunks out of order");
	if (!layout->lease)
		return 0;
	if (message->lease != layout->lease || message->kind != layout->kind ||
	    message->device != layout->device ||
	    (message->flags & ~GPUMEM_LAYOUT_MORE) != layout->flags ||
	    memcmp(message->uuid, layout->uuid, sizeof(layout->uuid)) != 0)
		return packet_malformed("layout of another file");
	return 0;
}

/* The file may begin inside its first chunk, whose offset then is negative. */
static uint64_t packet_skip(const struct gpumem_msg_layout *message,
			    const struct client_layout *layout)
{
	if (layout->n_chunks || !message->n_chunks || message->kind == GPUMEM_KIND_HOST)
		return layout->skip;
	uint64_t skip = -message->chunks[0].offset;

	return skip < message->chunks[0].bytes ? skip : 0;
}

static int chunk_check(const struct gpumem_chunk *chunk, uint32_t kind, uint64_t skip, uint64_t at)
{
	if (chunk->offset + skip != at)
		return packet_malformed("gap between chunks");
	if (chunk->bytes > (uint64_t)INT64_MAX - at)
		return packet_malformed("chunk too large");
	if (kind != GPUMEM_KIND_HOST && (chunk->bytes == 0 || chunk->bytes % CLIENT_CHUNK_ALIGN))
		return packet_malformed("invalid chunk size");
	return 0;
}

/* Whether mmap(2) maps the chunks. */
static bool kind_is_object(uint32_t kind)
{
	return kind == GPUMEM_KIND_HOST || kind == GPUMEM_KIND_MEMFD;
}

/* Checks that the object has all mapped bytes: access to a page behind the end of an object is a
 * SIGBUS. */
static int object_check_size(int fd, uint64_t bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return packet_malformed("chunk that cannot be mapped");
	if (st.st_size < 0 || ((uint64_t)st.st_size + PAGE - 1) / PAGE < (bytes + PAGE - 1) / PAGE)
		return packet_malformed("chunk shorter than announced");
	return 0;
}

static int packet_check_chunks(const struct client_packet *packet,
			       const struct client_layout *layout)
{
	const struct gpumem_msg_layout *message = &packet->u.layout;
	uint64_t at = layout->bytes, skip = packet_skip(message, layout);

	if (packet->n_fds != message->n_chunks)
		return packet_malformed("numbers of chunks and descriptors differ");
	for (uint32_t i = 0; i < message->n_chunks; i++) {
		int rc = chunk_check(&message->chunks[i], message->kind, skip, at);
		if (rc == 0 && kind_is_object(message->kind))
			rc = object_check_size(packet->fds[i], message->chunks[i].bytes);
		if (rc < 0)
			return rc;
		at += message->chunks[i].bytes;
	}
	return 0;
}

static int layout_add_chunks(struct client_packet *packet, struct client_layout *layout)
{
	const struct gpumem_msg_layout *message = &packet->u.layout;
	size_t n = (size_t)layout->n_chunks + message->n_chunks;

	if (message->n_chunks == 0)
		return 0;
	struct client_chunk *chunks = realloc(layout->chunks, n * sizeof(*chunks));
	if (!chunks)
		return client_fail(ENOMEM, "no memory for a layout of %zu chunks", n);
	layout->skip = packet_skip(message, layout);
	for (uint32_t i = 0; i < message->n_chunks; i++)
		chunks[layout->n_chunks + i] =
		    (struct client_chunk){.offset = message->chunks[i].offset + layout->skip,
					  .bytes = message->chunks[i].bytes,
					  .fd = packet->fds[i]};
	packet->n_fds = 0;
	layout->chunks = chunks;
	layout->n_chunks = (uint32_t)n;
	layout_count_bytes(layout);
	return 0;
}

/* An object of host/ grows in place, and its chunk grows with the object. */
static void layout_refresh_object(struct client_layout *layout)
{
	struct stat st;

	if (layout->kind != GPUMEM_KIND_HOST || layout->n_chunks == 0 ||
	    fstat(layout->chunks[0].fd, &st) < 0 || (uint64_t)st.st_size < layout->bytes)
		return;
	layout->chunks[0].bytes = (uint64_t)st.st_size;
	layout_count_bytes(layout);
}

static int layout_parse(struct client_packet *packet, uint32_t request,
			struct client_layout *layout)
{
	const struct gpumem_msg_layout *message = &packet->u.layout;

	int rc = packet_check_header(packet, request);
	if (rc < 0)
		return rc;
	if (packet->u.header.type == GPUMEM_MSG_ERROR)
		return packet_check_error(packet);
	if (packet->u.header.type != GPUMEM_MSG_LAYOUT)
		return packet_malformed("not a layout");
	rc = packet_check_fields(message, packet->bytes);
	if (rc == 0)
		rc = packet_check_position(message, layout);
	if (rc == 0)
		rc = packet_check_chunks(packet, layout);
	return rc < 0 ? rc : layout_add_chunks(packet, layout);
}

int client_answer_layout(struct client_packet *packet, uint32_t request,
			 struct client_layout *layout, bool *has_more)
{
	const struct gpumem_msg_layout *message = &packet->u.layout;

	int rc = layout_parse(packet, request, layout);
	client_packet_close(packet);
	if (rc < 0)
		return rc;
	layout->lease = message->lease;
	layout->kind = message->kind;
	layout->flags = message->flags & ~(uint32_t)GPUMEM_LAYOUT_MORE;
	layout->device = message->device;
	memcpy(layout->uuid, message->uuid, sizeof(layout->uuid));
	layout_refresh_object(layout);
	/* If the file grows meanwhile, its size may exceed the chunks of this answer. */
	layout->size = message->size < layout->bytes - layout->skip ? message->size
								    : layout->bytes - layout->skip;
	*has_more = message->flags & GPUMEM_LAYOUT_MORE;
	return 0;
}

/* Checks a packet that must have this type and length, and no descriptors. */
static int packet_check_plain(struct client_packet *packet, uint32_t request, uint16_t type,
			      size_t bytes, const char *complaint)
{
	int rc = packet_check_header(packet, request);

	if (rc == 0 && packet->u.header.type == GPUMEM_MSG_ERROR)
		rc = packet_check_error(packet);
	else if (rc == 0 &&
		 (packet->u.header.type != type || packet->n_fds || packet->bytes != bytes))
		rc = packet_malformed(complaint);
	client_packet_close(packet);
	return rc;
}

int client_answer_key(struct client_packet *packet, uint32_t request, uint8_t key[GPUMEM_KEY_BYTES])
{
	int rc =
	    packet_check_plain(packet, request, GPUMEM_MSG_KEY, sizeof(packet->u.key), "not a key");

	if (rc == 0)
		memcpy(key, packet->u.key.key, sizeof(packet->u.key.key));
	return rc;
}

int client_answer_done(struct client_packet *packet, uint32_t request)
{
	return packet_check_plain(packet, request, GPUMEM_MSG_DONE, sizeof(packet->u.header),
				  "not the end of a lease");
}

static bool notice_is_valid(const struct gpumem_msg_notice *notice)
{
	bool parks = notice->what == GPUMEM_NOTICE_PARK || notice->what == GPUMEM_NOTICE_UNPARK;

	if (notice->flags & ~(uint32_t)GPUMEM_NOTICE_NOW || notice->reserved)
		return false;
	if (parks)
		return !notice->bytes && !notice->device;
	if (notice->what == GPUMEM_NOTICE_RECALL || notice->what == GPUMEM_NOTICE_END)
		return !notice->flags && notice->inode && !notice->bytes && !notice->device;
	return notice->what == GPUMEM_NOTICE_MEMORY && !notice->flags && !notice->inode;
}

int client_answer_notice(const void *packet, size_t bytes, struct gpumem_msg_notice *notice)
{
	struct gpumem_msg_header header;

	if (bytes < sizeof(header))
		return packet_malformed("not a message of gpumemfs");
	memcpy(&header, packet, sizeof(header));
	if (header.magic != GPUMEM_MAGIC || header.version != GPUMEM_PROTOCOL_VERSION ||
	    header.bytes != bytes)
		return packet_malformed("not a message of this version");
	if (header.type == GPUMEM_MSG_DONE && bytes == sizeof(header))
		return 1;
	if (header.type != GPUMEM_MSG_NOTICE || bytes != sizeof(*notice))
		return packet_malformed("not a notice");
	memcpy(notice, packet, sizeof(*notice));
	return notice_is_valid(notice) ? 0 : packet_malformed("invalid notice");
}
