/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Requests on the sharing socket. The share thread reads and checks a packet, and answers if no
 * step waits; otherwise a thread of the queue answers. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/log.h"
#include "fs/share/internal.h"

/* With a keeper a packet stays in the socket until the request is answered, for the next daemon. */
static int packet_flags(const struct share *share)
{
	return MSG_DONTWAIT | MSG_TRUNC | (share->persist ? MSG_PEEK : 0);
}

/* The request is answered. A packet left unread at close() would make the client read ECONNRESET
 * before the answer. */
static void packet_consume(struct share *share, struct share_connection *connection)
{
	char packet;

	if (share->persist)
		recv(connection->fd, &packet, sizeof(packet), MSG_DONTWAIT);
}

/* 0, -EAGAIN: no packet is there, or -EPIPE: the connection is to end. The kernel closes
 * descriptors that come with a packet, as recv() gives no room for them. */
static int packet_read(struct share *share, struct share_connection *connection)
{
	char packet[SHARE_REQUEST_MAX + 1];
	ssize_t n = recv(connection->fd, packet, sizeof(packet), packet_flags(share));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	if (n <= 0 || n > SHARE_REQUEST_MAX)
		return -EPIPE;
	int error = share_request_parse(packet, (size_t)n, &connection->request);

	if (error == -EPROTONOSUPPORT) {
		share_send_error(connection, 0, -error);
		packet_consume(share, connection);
	}
	return error ? -EPIPE : 0;
}

/* Ends a request whose answer is error, or the packets that were sent. */
static int request_done(struct share *share, struct share_connection *connection, int error)
{
	if (error && error != -EPIPE)
		error = share_send_error(connection, connection->request.number, -error);
	packet_consume(share, connection);
	share_answered(share, connection);
	return error;
}

/* -EINPROGRESS: the connection has the token's file, and the token cannot expire from here on; or
 * -EACCES. */
static int request_redeem_token(struct share *share, struct share_connection *connection,
				const struct share_request *request)
{
	/* An earlier daemon has redeemed the token for the pending lease. */
	if (connection->pending_reply)
		return -EINPROGRESS;
	int error = token_redeem(share->fs, &share->tokens, request->token, connection->uid,
				 &connection->redeemed);

	return error ? error : -EINPROGRESS;
}

/* Marks the pending lease as answered if the lease belongs to another request. A daemon that is
 * killed between the two steps of request_done leaves such a lease, which looks unanswered, while
 * the packet of its request is gone. */
static void pending_reply_forget(struct share *share, struct share_connection *connection)
{
	const struct share_lease *lease = connection->pending_reply;

	if (lease && lease->token != share_request_mark(&connection->request))
		share_answered(share, connection);
}

static int request_serve(struct share *share, struct share_connection *connection,
			 enum file_wait wait)
{
	const struct share_request *request = &connection->request;

	switch (request->type) {
	case GPUMEM_MSG_LEASE:
		return share_lease(share, connection, request, wait);
	case GPUMEM_MSG_EXTEND:
		return share_extend(share, connection, request, wait);
	default:
		return share_release(share, connection, request, wait);
	}
}

/* Tries the request in the share thread, unless more packets wait. -EINPROGRESS: the request must
 * go to the queue, which is fair to users. */
static int request_try(struct share *share, struct share_connection *connection)
{
	int error =
	    share_has_more(share) ? -EINPROGRESS : request_serve(share, connection, FILE_NO_WAIT);

	return error == -EINPROGRESS ? error : request_done(share, connection, error);
}

/* Serves the steps of a request that never wait. -EINPROGRESS: the queue does the rest. */
static int request_begin(struct share *share, struct share_connection *connection)
{
	const struct share_request *request = &connection->request;
	int error = -EINPROGRESS;

	if (request->type == GPUMEM_MSG_HELLO) {
		error = share_connection_key(share, connection);
		return request_done(share, connection,
				    error ? error : share_send_key(connection, request->number));
	}
	if (request->type == GPUMEM_MSG_LEASE) {
		pending_reply_forget(share, connection);
		error = request_redeem_token(share, connection, request);
	}
	if (error == -EINPROGRESS)
		return request_try(share, connection);
	request_done(share, connection, error);
	/* A client with a wrong token gets no second try. */
	return -EPIPE;
}

void share_receive(struct share *share, struct share_connection *connection)
{
	struct log_caller before = log_caller_change((struct log_caller){true, connection->uid});
	int error = packet_read(share, connection);

	if (!error)
		error = request_begin(share, connection);
	if (error == -EINPROGRESS)
		share_queue_add(share->queue, connection->user, &connection->job);
	else if (error == -EPIPE)
		share_connection_end(share, connection);
	else
		share_connection_release(share, connection);
	log_caller_change(before);
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

void share_work(void *pointer, struct share_job *job)
{
	struct share_connection *connection = (struct share_connection *)job;
	struct share *share = pointer;
	struct log_caller before = log_caller_change((struct log_caller){true, connection->uid});

	if (connection_is_ending(share, connection) || peer_is_gone(connection) ||
	    request_done(share, connection, request_serve(share, connection, FILE_MAY_WAIT)))
		share_connection_free(share, connection);
	else
		share_connection_release(share, connection);
	log_caller_change(before);
}
