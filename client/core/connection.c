/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/core/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/core/error.h"
#include "client/core/mount.h"
#include "client/core/process.h"
#include "client/core/send.h"
#include "common/cleanup.h"

struct client_connection {
	struct client_connection *next; /* under connections_lock */
	unsigned references;		/* under connections_lock */
	dev_t device;			/* of the mount */
	pthread_mutex_t lock;		/* held for a request with its answer */
	int fd;				/* under lock; -1: closed */
	ino_t socket; /* inode of fd, because programs close descriptors that they do not own */
	uint32_t requests;	       /* under lock */
	uint8_t key[GPUMEM_KEY_BYTES]; /* the daemon's name for the connection; never changes */
};

/* Taken before a connection's lock, never after. */
static pthread_mutex_t connections_lock = PTHREAD_MUTEX_INITIALIZER;
static struct client_connection *open_connections;

static void connections_forked(void);
static struct client_fork_handler fork_handler = {.forked = connections_forked};

/* Under the connection's lock. */
static bool connection_is_ours(const struct client_connection *connection)
{
	struct stat st;

	return connection->fd >= 0 && fstat(connection->fd, &st) == 0 && S_ISSOCK(st.st_mode) &&
	       st.st_ino == connection->socket;
}

/* Under the connection's lock. */
static void connection_close(struct client_connection *connection)
{
	if (connection_is_ours(connection))
		close(connection->fd);
	connection->fd = -1;
}

static int connection_fail(struct client_connection *connection)
{
	connection_close(connection);
	return client_fail(ENOTCONN, "the daemon that gave the lease has ended; what is mapped "
				     "stays until it is unmapped");
}

static struct client_connection *connection_new(int fd, dev_t device)
{
	struct client_connection *connection = calloc(1, sizeof(*connection));
	struct stat st;

	if (!connection || fstat(fd, &st) < 0) {
		free(connection);
		return NULL;
	}
	pthread_mutex_init(&connection->lock, NULL);
	connection->fd = fd;
	connection->device = device;
	connection->socket = st.st_ino;
	connection->references = 1;
	return connection;
}

static void connection_free(struct client_connection *connection)
{
	connection_close(connection);
	pthread_mutex_destroy(&connection->lock);
	free(connection);
}

/* Under connections_lock. A closed connection is freed with its last reference; a live connection
 * stays for the next file. */
static void connection_unref(struct client_connection *connection)
{
	struct client_connection **at = &open_connections;

	pthread_mutex_lock(&connection->lock);
	bool unused = !connection_is_ours(connection);
	pthread_mutex_unlock(&connection->lock);
	if (--connection->references || !unused)
		return;
	while (*at && *at != connection)
		at = &(*at)->next;
	if (*at)
		*at = connection->next;
	connection_free(connection);
}

void client_connection_put(struct client_connection *connection)
{
	if (!connection)
		return;
	scoped_lock(&connections_lock);
	connection_unref(connection);
}

/* Under connections_lock: finds the live connection to a mount. */
static struct client_connection *connection_find(dev_t device)
{
	for (struct client_connection *at = open_connections; at; at = at->next) {
		if (at->device != device)
			continue;
		pthread_mutex_lock(&at->lock);
		bool live = connection_is_ours(at);
		pthread_mutex_unlock(&at->lock);
		if (live)
			return at;
	}
	return NULL;
}

static int request_send(struct client_connection *connection, struct gpumem_msg_header *request,
			uint16_t type, uint32_t bytes)
{
	if (connection_is_ours(connection) &&
	    client_send(connection->fd, request, type, bytes, ++connection->requests, 0))
		return 0;
	return connection_fail(connection);
}

union control {
	struct cmsghdr header; /* for its alignment */
	char bytes[CMSG_SPACE(GPUMEM_FDS_MAX * sizeof(int))];
};

static void packet_take_fds(struct msghdr *message, struct client_packet *packet)
{
	for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
		if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
			continue;
		unsigned n = (unsigned)((at->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		if (n > GPUMEM_FDS_MAX - packet->n_fds) /* more than fit: impossible */
			n = GPUMEM_FDS_MAX - packet->n_fds;
		memcpy(packet->fds + packet->n_fds, CMSG_DATA(at), n * sizeof(int));
		packet->n_fds += n;
	}
}

/* Tells why the kernel dropped descriptors: the packet had more than the protocol allows, or this
 * process has reached its limit of open files. */
static int packet_fail_truncated(const struct client_packet *packet)
{
	if (packet->n_fds < GPUMEM_FDS_MAX)
		return client_fail(EMFILE, "too many open files to take the file's chunks: raise "
					   "the limit (ulimit -n)");
	return client_fail(EPROTO, "invalid answer of the daemon: too many descriptors");
}

static int packet_receive_next(struct client_connection *connection, struct client_packet *packet)
{
	union control control;
	struct iovec part = {.iov_base = packet->u.bytes, .iov_len = sizeof(packet->u.bytes)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};
	ssize_t n;

	packet->n_fds = 0;
	do {
		n = recvmsg(connection->fd, &message, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return connection_fail(connection);
	packet->bytes = (size_t)n;
	packet_take_fds(&message, packet);
	if (n ==
	    0) { /* the end of the connection, or an empty packet, which may have descriptors */
		client_packet_close(packet);
		return connection_fail(connection);
	}
	int rc = 0;
	if (message.msg_flags & MSG_CTRUNC)
		rc = packet_fail_truncated(packet);
	else if (message.msg_flags & MSG_TRUNC)
		rc = client_fail(EPROTO, "invalid answer of the daemon: too long");
	if (rc < 0)
		client_packet_close(packet);
	return rc;
}

/* After a takeover, the new daemon may repeat answers of the killed one. */
static bool packet_is_late(const struct client_connection *connection,
			   const struct client_packet *packet)
{
	const struct gpumem_msg_header *header = &packet->u.header;

	return packet->bytes >= sizeof(*header) && header->magic == GPUMEM_MAGIC &&
	       (int32_t)(header->request - connection->requests) < 0;
}

static int packet_receive(struct client_connection *connection, struct client_packet *packet)
{
	int rc = packet_receive_next(connection, packet);

	while (rc == 0 && packet_is_late(connection, packet)) {
		client_packet_close(packet);
		rc = packet_receive_next(connection, packet);
	}
	return rc;
}

/* Under the connection's lock. If the daemon has ended, so has the lease. */
static void lease_release(struct client_connection *connection, uint64_t lease)
{
	struct gpumem_msg_release request = {.lease = lease};
	struct client_packet packet;

	if (request_send(connection, &request.header, GPUMEM_MSG_RELEASE, sizeof(request)) < 0)
		return;
	int rc = packet_receive(connection, &packet);
	if (rc == 0)
		rc = client_answer_done(&packet, request.header.request);
	if (rc == -EPROTO)
		connection_close(connection);
}

/* Adds the chunks of a packet. */
static int layout_receive_part(struct client_connection *connection, uint32_t request,
			       struct client_packet *packet, struct client_layout *layout,
			       bool *has_more)
{
	packet->u.header.type = 0;
	int rc = packet_receive(connection, packet);
	return rc == 0 ? client_answer_layout(packet, request, layout, has_more) : rc;
}

/* Requests the chunks behind those of the layout, and gives the number of the request. */
static int extend_send(struct client_connection *connection, const struct client_layout *layout,
		       uint32_t *request)
{
	struct gpumem_msg_extend message = {.lease = layout->lease,
					    .first_chunk = layout->n_chunks};

	int rc = request_send(connection, &message.header, GPUMEM_MSG_EXTEND, sizeof(message));
	*request = message.header.request;
	return rc;
}

/* The lease in a packet that could not be used, or 0. */
static uint64_t packet_lease(const struct client_packet *packet, uint32_t request)
{
	const struct gpumem_msg_layout *message = &packet->u.layout;

	return message->header.type == GPUMEM_MSG_LAYOUT && packet->bytes >= sizeof(*message) &&
		       message->header.request == request
		   ? message->lease
		   : 0;
}

/* Receives all chunks. A process that has reached its limit of open files loses this file only, not
 * the leases of its other files: a new lease is released. */
static int layout_receive(struct client_connection *connection, uint32_t request,
			  struct client_layout *layout)
{
	struct client_layout had = *layout;
	struct client_packet packet;
	bool has_more = false;

	int rc = layout_receive_part(connection, request, &packet, layout, &has_more);
	while (rc == 0 && has_more) {
		rc = extend_send(connection, layout, &request);
		if (rc == 0)
			rc = layout_receive_part(connection, request, &packet, layout, &has_more);
	}
	if (rc == 0)
		return 0;
	uint64_t lease = layout->lease ? layout->lease : packet_lease(&packet, request);
	client_layout_cut(layout, had.n_chunks);
	layout->lease = had.lease;
	layout->size = had.size;
	if (rc == -EPROTO)
		connection_close(connection);
	else if (!had.lease && lease && connection_is_ours(connection))
		lease_release(connection, lease);
	return rc;
}

/* No other thread knows the connection yet. */
static int key_request(struct client_connection *connection)
{
	struct gpumem_msg_header request = {0};
	struct client_packet packet;

	int rc = request_send(connection, &request, GPUMEM_MSG_HELLO, sizeof(request));
	if (rc == 0)
		rc = packet_receive(connection, &packet);
	return rc == 0 ? client_answer_key(&packet, request.request, connection->key) : rc;
}

static int connection_open(int fd, dev_t device, struct client_connection **connection)
{
	int connected = client_mount_connect(fd);
	if (connected < 0)
		return connected;
	struct client_connection *new_connection = connection_new(connected, device);
	if (!new_connection) {
		close(connected);
		return client_fail(ENOMEM, "no memory for a connection");
	}
	int rc = key_request(new_connection);
	if (rc < 0)
		connection_free(new_connection);
	else
		*connection = new_connection;
	return rc;
}

static int file_device(int fd, dev_t *device)
{
	struct statx st;

	/* The device never changes: AT_STATX_DONT_SYNC saves a request to the daemon. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
		return client_fail(errno, "statx: %s", strerror(errno));
	*device = makedev(st.stx_dev_major, st.stx_dev_minor);
	return 0;
}

/* Takes a reference to the connection for the file's mount. */
static int connection_get(int fd, struct client_connection **connection)
{
	dev_t device = 0;

	int rc = file_device(fd, &device);
	if (rc < 0)
		return rc;
	scoped_lock(&connections_lock);
	struct client_connection *found = connection_find(device);
	if (found) {
		found->references++;
	} else {
		client_fork_handler_register(&fork_handler);
		rc = connection_open(fd, device, &found);
		if (rc < 0)
			return rc;
		found->next = open_connections;
		open_connections = found;
	}
	*connection = found;
	return 0;
}

/* Under the connection's lock: sends so many pieces from first on. */
static int pieces_send(struct client_connection *connection, const struct client_adoption *from,
		       uint32_t first, uint32_t n)
{
	union {
		struct gpumem_msg_pieces head;
		char bytes[sizeof(struct gpumem_msg_pieces) + GPUMEM_FDS_MAX * sizeof(uint64_t)];
	} packet = {0};
	size_t bytes = sizeof(packet.head) + n * sizeof(packet.head.bytes[0]);
	struct client_packet answer;

	packet.head.first = first;
	packet.head.n_pieces = n;
	for (uint32_t i = 0; i < n; i++)
		packet.head.bytes[i] = from->sizes[first + i];
	if (!connection_is_ours(connection))
		return connection_fail(connection);
	int rc = client_send_fds(connection->fd, &packet.head.header, GPUMEM_MSG_PIECES, bytes,
				 ++connection->requests, from->fds + first, n);
	if (rc == -EPERM)
		return client_fail(EPERM, "the daemon takes memory of its own user and of root "
					  "only");
	if (rc < 0)
		return connection_fail(connection);
	rc = packet_receive(connection, &answer);
	return rc == 0 ? client_answer_done(&answer, packet.head.header.request) : rc;
}

/* Under the connection's lock. */
static int pieces_send_all(struct client_connection *connection, const struct client_adoption *from)
{
	uint32_t n = from->n_pieces;
	int rc = 0;

	for (uint32_t at = 0; rc == 0 && at < n; at += GPUMEM_FDS_MAX)
		rc = pieces_send(connection, from, at,
				 n - at < GPUMEM_FDS_MAX ? n - at : GPUMEM_FDS_MAX);
	return rc;
}

/* The connection goes on, with the leases of other files: after its replacement the daemon knows
 * the connection, and not the pieces that came before. */
static int adopt_ask(struct client_connection *connection, int fd,
		     const struct client_adoption *from, struct gpumem_lease_ask *lease)
{
	struct gpumem_adopt_ask ask = {.lease = *lease,
				       .skip = from->skip,
				       .size = from->size,
				       .n_pieces = from->n_pieces,
				       .flags = from->flags};
	int rc = pieces_send_all(connection, from);

	if (rc < 0)
		return rc;
	ask.lease.request = lease->request = ++connection->requests;
	rc = client_mount_adopt(fd, &ask);
	return rc == -ESTALE ? client_fail(EAGAIN, "the daemon was replaced while it took the "
						   "memory")
			     : rc;
}

/* adopted: memory for the file, or NULL. */
static int lease_request(struct client_connection *connection, int fd, int flags,
			 const struct client_adoption *adopted, struct client_layout *layout)
{
	struct gpumem_lease_ask ask = {.version = GPUMEM_PROTOCOL_VERSION};
	int rc;

	scoped_lock(&connection->lock);
	if (!connection_is_ours(connection))
		return connection_fail(connection);
	memcpy(ask.key, connection->key, sizeof(ask.key));
	if (adopted) {
		rc = adopt_ask(connection, fd, adopted, &ask);
	} else {
		ask.request = ++connection->requests;
		rc = client_mount_lease(fd, flags, &ask);
	}
	if (rc == -ESTALE)
		return connection_fail(connection);
	return rc < 0 ? rc : layout_receive(connection, ask.request, layout);
}

/* Each try after the first is for another daemon, because the daemon of the try before has ended,
 * perhaps before it answered a new connection. Only a series of crashes needs more than two. */
#define LEASE_TRIES 10

int client_connection_lease(int fd, int flags, const struct client_adoption *adopted,
			    struct client_connection **connection, struct client_layout *layout)
{
	struct client_connection *peer = NULL;
	int rc = -ENOTCONN;

	for (unsigned attempt = 0;
	     (rc == -ENOTCONN || (adopted && rc == -EAGAIN)) && attempt < LEASE_TRIES; attempt++) {
		*layout = (struct client_layout){0};
		rc = connection_get(fd, &peer);
		if (rc < 0)
			continue;
		rc = lease_request(peer, fd, flags, adopted, layout);
		if (rc < 0)
			client_connection_put(peer);
	}
	if (rc == 0)
		*connection = peer;
	return rc;
}

int client_connection_extend(struct client_connection *connection, struct client_layout *layout)
{
	uint32_t request;

	scoped_lock(&connection->lock);
	int rc = extend_send(connection, layout, &request);
	return rc < 0 ? rc : layout_receive(connection, request, layout);
}

ssize_t client_connection_copy(const struct client_connection *connection, uint64_t lease,
			       uint64_t at, int fd, uint64_t offset, uint64_t bytes)
{
	struct gpumem_copy_ask ask = {.version = GPUMEM_PROTOCOL_VERSION,
				      .lease = lease,
				      .from = at,
				      .to = offset,
				      .bytes = bytes};
	int n;

	memcpy(ask.key, connection->key, sizeof(ask.key));
	do {
		n = ioctl(fd, GPUMEM_IOC_COPY, &ask);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

void client_connection_release(struct client_connection *connection, uint64_t lease)
{
	if (!connection)
		return;
	pthread_mutex_lock(&connection->lock);
	lease_release(connection, lease);
	pthread_mutex_unlock(&connection->lock);
	client_connection_put(connection);
}

/* In the child of a fork, before the child has threads: an inherited socket would keep the parent's
 * leases after the parent's end. */
static void connections_forked(void)
{
	for (struct client_connection *at = open_connections, *next; at; at = next) {
		next = at->next;
		connection_free(at);
	}
	open_connections = NULL;
}
