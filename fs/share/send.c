/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "fs/share/internal.h"
#include "fs/tree/inode.h"

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

/* A peer that does not read what it asked for is not waited for. */
static int send_packet(int fd, const struct msghdr *message)
{
	ssize_t n;

	do {
		n = sendmsg(fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -EPIPE : 0;
}

/* The last packet of an answer: the client may ask again before the thread that sends it is done.
 */
static int send_last(struct share_connection *connection, const struct msghdr *message)
{
	atomic_store(&connection->answered, true);
	return send_packet(connection->fd, message);
}

static int send_plain(struct share_connection *connection, void *packet, size_t bytes)
{
	struct iovec part = {.iov_base = packet, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	return send_last(connection, &message);
}

int share_send_error(struct share_connection *connection, uint32_t number, int error)
{
	struct gpumem_msg_error packet = {
	    .header = header(GPUMEM_MSG_ERROR, sizeof(packet), number),
	    .error = error,
	};

	return send_plain(connection, &packet, sizeof(packet));
}

int share_send_done(struct share_connection *connection, uint32_t number)
{
	struct gpumem_msg_header packet = header(GPUMEM_MSG_DONE, sizeof(packet), number);

	return send_plain(connection, &packet, sizeof(packet));
}

int share_send_key(struct share_connection *connection, uint32_t number)
{
	struct gpumem_msg_key packet = {
	    .header = header(GPUMEM_MSG_KEY, sizeof(packet), number),
	};

	memcpy(packet.key, connection->key, sizeof(packet.key));
	return send_plain(connection, &packet, sizeof(packet));
}

static int hex(char digit)
{
	return digit >= '0' && digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10;
}

/* The 16 bytes of "GPU-xxxxxxxx-xxxx-...". */
static void uuid_bytes(const char *text, uint8_t uuid[16])
{
	unsigned digits = 0;

	for (const char *at = text + strlen("GPU-"); *at && digits < 32; at++) {
		if (*at == '-')
			continue;
		uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | hex(*at));
		digits++;
	}
}

struct share_layout {
	uint32_t number; /* of the request */
	uint64_t lease;
	uint32_t kind, flags;
	struct file_place place; /* where the chunks that are sent were found */
};

union fds_control {
	struct cmsghdr header; /* for its alignment */
	char bytes[CMSG_SPACE(GPUMEM_FDS_MAX * sizeof(int))];
};

static void put_fds(struct msghdr *message, union fds_control *control,
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

/* One packet; the fds are closed. */
static int send_layout(struct share_connection *connection, const struct share_layout *layout,
		       uint32_t first, struct file_chunk *chunks, uint32_t count, uint32_t flags)
{
	const struct volume *volume = layout->place.volume;
	struct gpumem_chunk parts[GPUMEM_CHUNKS_PER_MESSAGE];
	size_t bytes = sizeof(struct gpumem_msg_layout) + count * sizeof(parts[0]);
	struct gpumem_msg_layout packet = {
	    .header = header(GPUMEM_MSG_LAYOUT, (uint32_t)bytes, layout->number),
	    .lease = layout->lease,
	    .size = layout->place.size,
	    .kind = layout->kind,
	    .flags = layout->flags | flags,
	    .first_chunk = first,
	    .n_chunks = count,
	};
	struct iovec iov[] = {{.iov_base = &packet, .iov_len = sizeof(packet)},
			      {.iov_base = parts, .iov_len = count * sizeof(parts[0])}};
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};
	union fds_control control = {0};

	if (volume->device) {
		packet.device = volume->device->index;
		uuid_bytes(volume->device->uuid, packet.uuid);
	}
	for (uint32_t i = 0; i < count; i++)
		parts[i] = (struct gpumem_chunk){chunks[i].offset, chunks[i].bytes};
	if (count)
		put_fds(&message, &control, chunks, count);
	int error = flags & GPUMEM_LAYOUT_MORE ? send_packet(connection->fd, &message)
					       : send_last(connection, &message);

	file_chunks_close(chunks, count);
	return error;
}

static uint32_t kind_of(const struct fs *fs, const struct volume *volume)
{
	if (!volume->device)
		return GPUMEM_KIND_HOST;
	return backend_is_host(fs->backend) ? GPUMEM_KIND_MEMFD : GPUMEM_KIND_DEVICE;
}

/* Chunks of a file, and where it was when they were exported. */
struct batch {
	struct file_chunk chunks[GPUMEM_FDS_MAX];
	struct file_place place;
	int count; /* or -errno */
};

/* Each batch is a look of its own at what the lease may be given. */
static void batch_export(struct batch *batch, const struct share_lease *lease, enum file_wait wait,
			 uint32_t first)
{
	batch->count = file_export(lease->inode->file, share_access(lease->inode, lease->access),
				   wait, first, batch->chunks, GPUMEM_FDS_MAX, &batch->place);
}

/* Sends the file's chunks from first on, in batches. Whether more follow is known by looking one
 * batch ahead; -EAGAIN where that is one too many. */
int share_send_chunks(struct share *share, struct share_connection *connection,
		      const struct share_lease *lease, const struct share_ask *ask, uint32_t first)
{
	struct batch batches[2], *batch = &batches[0], *next = &batches[1];
	struct share_layout layout = {
	    .number = ask->number,
	    .lease = lease->number,
	    .flags = lease->private			    ? GPUMEM_LAYOUT_PRIVATE
		     : lease->access == GPUMEM_ACCESS_WRITE ? 0
							    : GPUMEM_LAYOUT_READ_ONLY,
	};

	for (batch_export(batch, lease, ask->wait, first);; first += GPUMEM_FDS_MAX) {
		if (batch->count < 0)
			return batch->count;
		next->count = 0;
		if (batch->count == GPUMEM_FDS_MAX)
			batch_export(next, lease, ask->wait, first + GPUMEM_FDS_MAX);
		if (next->count > 0 && ask->packets == ONE_PACKET) {
			file_chunks_close(next->chunks, (uint32_t)next->count);
			next->count = -EAGAIN;
		}
		if (next->count < 0) {
			file_chunks_close(batch->chunks, (uint32_t)batch->count);
			return next->count;
		}
		layout.place = batch->place;
		layout.kind = kind_of(share->fs, batch->place.volume);
		int error =
		    send_layout(connection, &layout, first, batch->chunks, (uint32_t)batch->count,
				next->count ? GPUMEM_LAYOUT_MORE : 0);
		if (error || !next->count) {
			file_chunks_close(next->chunks, (uint32_t)next->count);
			return error;
		}
		struct batch *sent = batch;

		batch = next;
		next = sent;
	}
}
