/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Requests: packets of the sharing socket, which the share thread reads and checks, and
 * GPUMEM_IOC_LEASE, which workers get. Both threads answer if no step waits; otherwise a thread of
 * the queue answers. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "common/log.h"
#include "fs/core/caller.h"
#include "fs/share/internal.h"
#include "fs/trace/observe.h"

/* The request is answered: until then the packet stays in the socket, for the next daemon. A packet
 * left unread at close() would make the client read ECONNRESET before the answer. */
static void packet_consume(struct share_connection *connection)
{
	char packet;

	recv(connection->fd, &packet, sizeof(packet), MSG_DONTWAIT);
}

/* 0, -EAGAIN: no packet is there, or -EPIPE: the connection is to end. The kernel closes
 * descriptors that come with a packet, as recv() gives no room for them. */
static int packet_read(struct share_connection *connection)
{
	char packet[SHARE_REQUEST_MAX + 1];
	ssize_t n =
	    recv(connection->fd, packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC | MSG_PEEK);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	if (n > 0 && share_is_pieces(packet, (size_t)n)) {
		struct gpumem_msg_header header;

		memcpy(&header, packet, sizeof(header));
		connection->request =
		    (struct share_request){.type = GPUMEM_MSG_PIECES, .number = header.request};
		return 0;
	}
	if (n <= 0 || n > SHARE_REQUEST_MAX)
		return -EPIPE;
	int error = share_request_parse(packet, (size_t)n, &connection->request);

	if (error == -EPROTONOSUPPORT) {
		share_send_error(connection, 0, -error);
		packet_consume(connection);
	}
	return error ? -EPIPE : 0;
}

/* Ends a request whose answer is error, or the packets that were sent. */
static int request_done(struct share_connection *connection, int error)
{
	if (error && error != -EPIPE)
		error = share_send_error(connection, connection->request.number, -error);
	packet_consume(connection);
	return error;
}

static int notice_serve(struct share *share, struct share_connection *connection,
			const struct share_request *request)
{
	if (request->type == GPUMEM_MSG_NOTICED) {
		share_noticed(share, connection, request);
		return 0;
	}
	int error = share_listen(share, connection, request->flags);

	return error ? error : share_send_done(connection, request->number);
}

static int request_serve(struct share *share, struct share_connection *connection,
			 enum file_wait wait)
{
	const struct share_request *request = &connection->request;

	if (request->type == GPUMEM_MSG_HELLO)
		return share_send_key(connection, request->number);
	if (request->type == GPUMEM_MSG_EXTEND)
		return share_extend(share, connection, request, wait);
	if (request->type == GPUMEM_MSG_RELEASE)
		return share_release(share, connection, request, wait);
	if (request->type == GPUMEM_MSG_PIECES)
		return share_pieces_receive(share, connection);
	return notice_serve(share, connection, request);
}

/* The other requests never wait. And the user's threads in the queue may all be waiting for an
 * answer to a notice, which must not wait for them. */
static bool request_is_for_file(enum gpumem_message_type type)
{
	return type == GPUMEM_MSG_EXTEND || type == GPUMEM_MSG_RELEASE;
}

/* Tries the request in the share thread; requests for a file only if no more packets wait.
 * -EINPROGRESS: the request must go to the queue, which is fair to users. */
static int request_try(struct share *share, struct share_connection *connection)
{
	bool may_serve = !request_is_for_file(connection->request.type) || !share_has_more(share);
	int error = may_serve ? request_serve(share, connection, FILE_NO_WAIT) : -EINPROGRESS;

	return error == -EINPROGRESS ? error : request_done(connection, error);
}

void share_receive(struct share *share, struct share_connection *connection)
{
	struct log_caller previous = log_caller_change((struct log_caller){true, connection->uid});
	int error = packet_read(connection);

	if (!error)
		error = request_try(share, connection);
	if (error == -EINPROGRESS) {
		connection->job.request = 0;
		turns_add(turns_of(share->fs), connection->user, &connection->job);
	} else if (error == -EPIPE) {
		share_connection_end(share, connection);
	} else {
		share_connection_release(share, connection);
	}
	log_caller_change(previous);
}

/* A client that hung up while its request waited needs no copy. */
static bool peer_is_gone(const struct share_connection *connection)
{
	struct pollfd peer = {.fd = connection->fd};

	return poll(&peer, 1, 0) > 0 && peer.revents & (POLLHUP | POLLERR);
}

static bool connection_is_ending(struct share *share, const struct share_connection *connection)
{
	pthread_mutex_lock(&share->lock);
	bool ending = connection->ending;

	pthread_mutex_unlock(&share->lock);
	return ending;
}

/* Gives the connection back, ended if the client took no answer: the result for the ioctl. */
static int ask_finish(struct share *share, struct share_connection *connection, int error)
{
	connection->ask = NULL;
	if (error == -EPIPE)
		shutdown(connection->fd, SHUT_RDWR);
	share_connection_release(share, connection);
	return error == -EPIPE ? -ESTALE : error;
}

int share_serve_ask(struct share *share, struct share_connection *connection, struct share_ask *ask)
{
	/* A ring of io_uring has few entries, and an ioctl that waits would keep its entry. */
	enum file_wait wait = share->fs->can.io_uring.on ? FILE_MAY_WAIT : FILE_NO_WAIT;
	int error = share_lease(share, connection, ask, wait);

	if (error != -EINPROGRESS)
		return ask_finish(share, connection, error);
	connection->ask = ask;
	connection->job.request = ask->request;
	turns_add(turns_of(share->fs), connection->user, &connection->job);
	return -EINPROGRESS;
}

static void ask_work(struct share *share, struct share_connection *connection)
{
	struct share_ask *ask = connection->ask;
	int error = -EPIPE;

	if (caller_is_killed(ask->pid))
		error = -EINTR;
	else if (!connection_is_ending(share, connection) && !peer_is_gone(connection))
		error = share_lease(share, connection, ask, FILE_MAY_WAIT);
	observe_background(share->fs, "lease");
	error = ask_finish(share, connection, error);
	ask->complete(ask, error);
}

static void packet_work(struct share *share, struct share_connection *connection)
{
	if (connection_is_ending(share, connection) || peer_is_gone(connection) ||
	    request_done(connection, request_serve(share, connection, FILE_MAY_WAIT)))
		share_connection_free(share, connection);
	else
		share_connection_release(share, connection);
}

void share_work(void *pointer, struct turns_job *job)
{
	struct share_connection *connection = (struct share_connection *)job;
	struct log_caller previous = log_caller_change((struct log_caller){true, connection->uid});

	if (connection->ask)
		ask_work(pointer, connection);
	else
		packet_work(pointer, connection);
	log_caller_change(previous);
}

/* At the end of the queue, share_close answers the ask. */
void share_cancel(void *pointer, struct turns_job *job, int error)
{
	struct share_connection *connection = (struct share_connection *)job;
	struct share_ask *ask = connection->ask;
	struct share *share = pointer;

	if (error != -EINTR)
		return;
	connection->ask = NULL;
	/* On the queue, because the calling thread must not wait: its leases end with a connection.
	 */
	if (connection_is_ending(share, connection)) {
		connection->job.request = 0;
		turns_add(turns_of(share->fs), connection->user, &connection->job);
	} else {
		share_connection_release(share, connection);
	}
	ask->complete(ask, error);
}
