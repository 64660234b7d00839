/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "backend/backend.h"
#include "fs/holders/holds.h"
#include "fs/share/internal.h"
#include "fs/tree/inode.h"
#include "fs/volume/volume.h"

#define ERRNO_MAX 4095

_Static_assert(sizeof(struct gpumem_msg_extend) <= SHARE_REQUEST_MAX &&
		   sizeof(struct gpumem_msg_release) <= SHARE_REQUEST_MAX &&
		   sizeof(struct gpumem_msg_listen) <= SHARE_REQUEST_MAX &&
		   sizeof(struct gpumem_msg_noticed) <= SHARE_REQUEST_MAX,
	       "SHARE_REQUEST_MAX holds every request");

enum file_share_access share_access(const struct inode *inode, enum gpumem_access access)
{
	struct attr_values attrs = atomic_load(&inode->attrs);

	if (access == GPUMEM_ACCESS_WRITE)
		return FILE_SHARE_WRITE;
	return attrs.share == SHARE_TRUSTED ? FILE_SHARE_TRUSTED : FILE_SHARE_READ;
}

static int parse_extend(const void *packet, size_t bytes, struct share_request *request)
{
	struct gpumem_msg_extend message;

	if (bytes != sizeof(message))
		return -EBADMSG;
	memcpy(&message, packet, sizeof(message));
	request->lease = message.lease;
	request->first_chunk = message.first_chunk;
	/* A chunk's number in a file has 32 bits. */
	return message.first_chunk > UINT32_MAX ? -EBADMSG : 0;
}

static int parse_release(const void *packet, size_t bytes, struct share_request *request)
{
	struct gpumem_msg_release message;

	if (bytes != sizeof(message))
		return -EBADMSG;
	memcpy(&message, packet, sizeof(message));
	request->lease = message.lease;
	return 0;
}

static int parse_listen(const void *packet, size_t bytes, struct share_request *request)
{
	const uint32_t flags =
	    GPUMEM_LISTEN_PARK | GPUMEM_LISTEN_MEMORY | GPUMEM_LISTEN_RECALL | GPUMEM_LISTEN_END;
	struct gpumem_msg_listen message;

	if (bytes != sizeof(message))
		return -EBADMSG;
	memcpy(&message, packet, sizeof(message));
	request->flags = message.flags;
	return !message.flags || message.flags & ~flags || message.reserved ? -EBADMSG : 0;
}

static int parse_noticed(const void *packet, size_t bytes, struct share_request *request)
{
	struct gpumem_msg_noticed message;

	if (bytes != sizeof(message))
		return -EBADMSG;
	memcpy(&message, packet, sizeof(message));
	request->error = message.error;
	request->files = message.files;
	return message.error < 0 || message.error > ERRNO_MAX ? -EBADMSG : 0;
}

int share_request_parse(const void *packet, size_t bytes, struct share_request *request)
{
	struct gpumem_msg_header header;

	if (bytes < sizeof(header))
		return -EBADMSG;
	memcpy(&header, packet, sizeof(header));
	if (header.magic != GPUMEM_MAGIC || header.bytes != bytes)
		return -EBADMSG;
	if (header.version != GPUMEM_PROTOCOL_VERSION)
		return -EPROTONOSUPPORT;
	*request = (struct share_request){.type = header.type, .number = header.request};
	switch (header.type) {
	case GPUMEM_MSG_EXTEND:
		return parse_extend(packet, bytes, request);
	case GPUMEM_MSG_RELEASE:
		return parse_release(packet, bytes, request);
	case GPUMEM_MSG_LISTEN:
		return parse_listen(packet, bytes, request);
	case GPUMEM_MSG_NOTICED:
		return parse_noticed(packet, bytes, request);
	case GPUMEM_MSG_HELLO:
		return bytes == sizeof(header) ? 0 : -EBADMSG;
	default:
		return -EBADMSG;
	}
}

bool share_is_pieces(const void *packet, size_t bytes)
{
	struct gpumem_msg_header header;

	if (bytes < sizeof(struct gpumem_msg_pieces))
		return false;
	memcpy(&header, packet, sizeof(header));
	return header.magic == GPUMEM_MAGIC && header.type == GPUMEM_MSG_PIECES &&
	       header.version == GPUMEM_PROTOCOL_VERSION;
}

int share_pieces_parse(const void *packet, size_t bytes, struct gpumem_msg_pieces *head)
{
	if (!share_is_pieces(packet, bytes))
		return -EBADMSG;
	memcpy(head, packet, sizeof(*head));
	return head->header.bytes == bytes && head->n_pieces <= GPUMEM_FDS_MAX &&
		       bytes == sizeof(*head) + head->n_pieces * sizeof(head->bytes[0])
		   ? 0
		   : -EBADMSG;
}

static struct gpumem_msg_header header(uint16_t type, uint32_t bytes, uint32_t number)
{
	return (struct gpumem_msg_header){
	    .magic = GPUMEM_MAGIC,
	    .version = GPUMEM_PROTOCOL_VERSION,
	    .type = type,
	    .bytes = bytes,
	    .request = number,
	};
}

/* Does not wait for a client that leaves its answers unread. */
static int packet_send(const struct share_connection *connection, const struct msghdr *message)
{
	ssize_t n;

	do {
		n = sendmsg(connection->fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -EPIPE : 0;
}

static int packet_send_plain(struct share_connection *connection, void *packet, size_t bytes)
{
	struct iovec part = {.iov_base = packet, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	return packet_send(connection, &message);
}

int share_send_error(struct share_connection *connection, uint32_t number, int error)
{
	struct gpumem_msg_error packet = {
	    .header = header(GPUMEM_MSG_ERROR, sizeof(packet), number),
	    .error = error,
	};

	return packet_send_plain(connection, &packet, sizeof(packet));
}

int share_send_done(struct share_connection *connection, uint32_t number)
{
	struct gpumem_msg_header packet = header(GPUMEM_MSG_DONE, sizeof(packet), number);

	return packet_send_plain(connection, &packet, sizeof(packet));
}

int share_send_key(struct share_connection *connection, uint32_t number)
{
	struct gpumem_msg_key packet = {
	    .header = header(GPUMEM_MSG_KEY, sizeof(packet), number),
	};

	memcpy(packet.key, connection->key, sizeof(packet.key));
	return packet_send_plain(connection, &packet, sizeof(packet));
}

int share_send_notice(struct share_connection *connection, uint32_t number,
		      const struct gpumem_msg_notice *notice)
{
	struct gpumem_msg_notice packet = *notice;

	packet.header = header(GPUMEM_MSG_NOTICE, sizeof(packet), number);
	return packet_send_plain(connection, &packet, sizeof(packet));
}

static int hex_value(char digit)
{
	return digit >= '0' && digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10;
}

/* The 16 bytes of "GPU-xxxxxxxx-xxxx-...". */
static void uuid_parse(const char *text, uint8_t uuid[16])
{
	unsigned digits = 0;

	for (const char *at = text + strlen("GPU-"); *at && digits < 32; at++) {
		if (*at == '-')
			continue;
		uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | hex_value(*at));
		digits++;
	}
}

struct share_layout {
	uint32_t number; /* of the request */
	uint64_t lease;
	uint32_t kind, flags, first;
	struct file_place place; /* where the chunks were when they were exported */
};

union fds_control {
	struct cmsghdr header; /* for its alignment */
	char bytes[CMSG_SPACE(GPUMEM_FDS_MAX * sizeof(int))];
};

static void packet_add_fds(struct msghdr *message, union fds_control *control,
			   const struct file_chunk *chunks, uint32_t count)
{
	int fds[GPUMEM_FDS_MAX];

	for (uint32_t i = 0; i < count; i++)
		fds[i] = chunks[i].fd;
	message->msg_control = control->bytes;
	message->msg_controllen = CMSG_SPACE(count * sizeof(int));
	struct cmsghdr *head = CMSG_FIRSTHDR(message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(head), fds, count * sizeof(int));
}

static int layout_send(struct share_connection *connection, const struct share_layout *layout,
		       const struct file_chunk *chunks, uint32_t count)
{
	const struct volume *volume = layout->place.volume;
	struct gpumem_chunk parts[GPUMEM_CHUNKS_PER_MESSAGE];
	size_t bytes = sizeof(struct gpumem_msg_layout) + count * sizeof(parts[0]);
	struct gpumem_msg_layout packet = {
	    .header = header(GPUMEM_MSG_LAYOUT, (uint32_t)bytes, layout->number),
	    .lease = layout->lease,
	    .size = layout->place.size,
	    .kind = layout->kind,
	    .flags = layout->flags,
	    .first_chunk = layout->first,
	    .n_chunks = count,
	};
	struct iovec iov[] = {{.iov_base = &packet, .iov_len = sizeof(packet)},
			      {.iov_base = parts, .iov_len = count * sizeof(parts[0])}};
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};
	union fds_control control = {0};

	if (volume->device) {
		packet.device = volume->device->index;
		uuid_parse(volume->device->uuid, packet.uuid);
	}
	for (uint32_t i = 0; i < count; i++)
		parts[i] = (struct gpumem_chunk){chunks[i].offset, chunks[i].bytes};
	if (count)
		packet_add_fds(&message, &control, chunks, count);
	return packet_send(connection, &message);
}

static uint32_t volume_kind(const struct fs *fs, const struct volume *volume)
{
	static const uint32_t kinds[] = {[CHUNK_MEMFD] = GPUMEM_KIND_MEMFD,
					 [CHUNK_CUDA_VMM] = GPUMEM_KIND_DEVICE,
					 [CHUNK_VULKAN] = GPUMEM_KIND_VULKAN};

	return volume->device ? kinds[backend_handle(fs->backend)] : GPUMEM_KIND_HOST;
}

static uint32_t lease_flags(const struct share_lease *lease)
{
	if (lease->private)
		return GPUMEM_LAYOUT_PRIVATE;
	return (lease->access == GPUMEM_ACCESS_WRITE ? 0 : GPUMEM_LAYOUT_READ_ONLY) |
	       (lease->delegated ? GPUMEM_LAYOUT_DELEGATED : 0);
}

/* Objects of host/ show their holders: host_out.h. */
int share_note_receiver(struct share *share, struct share_connection *connection,
			const struct inode *inode)
{
	int error = 0;

	if (!volume_is_device(file_volume(inode->file)))
		return 0;
	if (!connection->receiver)
		error = receiver_get(share->fs, connection->fd, connection->pid, connection->uid,
				     &connection->receiver);
	return error ? error : receiver_note(share->fs, connection->receiver, inode->ino);
}

int share_send_chunks(struct share *share, struct share_connection *connection,
		      const struct share_lease *lease, uint32_t number, uint32_t first,
		      enum file_wait wait)
{
	/* A chunk more than the packet has tells whether more chunks follow. */
	struct file_chunk chunks[GPUMEM_CHUNKS_PER_MESSAGE + 1];
	struct share_layout layout = {
	    .number = number, .lease = lease->number, .flags = lease_flags(lease), .first = first};
	int error = share_note_receiver(share, connection, lease->inode);

	if (error)
		return error;
	/* The export checks again which access the lease may have. */
	int count = file_export(lease->inode->file, share->fs->journal,
				share_access(lease->inode, lease->access), wait, first, chunks,
				GPUMEM_CHUNKS_PER_MESSAGE + 1, &layout.place);
	uint32_t sent = (uint32_t)count;

	if (count < 0)
		return count;
	if (count == 0 && first && lease->private)
		return -ENOTSUP; /* a private copy does not grow */
	if (sent > GPUMEM_CHUNKS_PER_MESSAGE) {
		layout.flags |= GPUMEM_LAYOUT_MORE;
		sent = GPUMEM_CHUNKS_PER_MESSAGE;
	}
	layout.kind = volume_kind(share->fs, layout.place.volume);
	/* The file may have moved to a GPU after the first check. */
	error = volume_is_device(layout.place.volume)
		    ? share_note_receiver(share, connection, lease->inode)
		    : 0;
	if (!error)
		error = layout_send(connection, &layout, chunks, sent);
	file_chunks_close(chunks, (uint32_t)count);
	return error;
}
