/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "common/defer.h"
#include "common/log.h"
#include "fs/keep.h"
#include "fs/share_state.h"
#include "fs/worker.h"

/* How often deadlines are looked at. */
#define TICK_MS 1000

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

static int watch(struct share *share, int fd, uint32_t events, void *who)
{
	struct epoll_event event = {.events = events, .data.ptr = who};

	return epoll_ctl(share->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* Before it is closed: while the keeper has a duplicate the events would go on. */
static void unwatch(struct share *share, int fd)
{
	if (fd >= 0)
		epoll_ctl(share->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static void connection_end(struct share *share, struct share_connection *connection)
{
	share_leases_end(share, connection);
	if (connection->has_key)
		HASH_DEL(share->by_key, connection);
	pthread_mutex_lock(&share->lock);
	DL_DELETE2(share->connections, connection, previous, next);
	share->n_connections--;
	pthread_mutex_unlock(&share->lock);
	unwatch(share, connection->fd);
	close(connection->fd);
	keep_drop(share->fs->keep, keep_id(KEEP_SOCKET, connection->number));
	free(connection);
}

static unsigned connections_of(const struct share *share, uid_t uid)
{
	unsigned count = 0;

	for (const struct share_connection *at = share->connections; at; at = at->next)
		count += at->uid == uid;
	return count;
}

int share_connection_add(struct share *share, int fd, uint64_t number)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length))
		return -errno;
	if (share->n_connections >= GPUMEM_CONNECTIONS_MAX &&
	    connections_of(share, peer.uid) >= GPUMEM_CONNECTIONS_MAX)
		return -EMFILE;
	struct share_connection *connection = calloc(1, sizeof(*connection));

	if (!connection)
		return -ENOMEM;
	*connection = (struct share_connection){
	    .fd = fd,
	    .pid = peer.pid,
	    .uid = peer.uid,
	    .number = number,
	    .deadline = now() + GPUMEM_TOKEN_SECONDS,
	};
	int error = watch(share, fd, EPOLLIN, connection);

	if (error) {
		free(connection);
		return error;
	}
	pthread_mutex_lock(&share->lock);
	DL_APPEND2(share->connections, connection, previous, next);
	share->n_connections++;
	pthread_mutex_unlock(&share->lock);
	return 0;
}

static void accept_one(struct share *share)
{
	int fd = accept4(share->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	uint64_t id = keep_id(KEEP_SOCKET, ++share->last_connection);

	/* Before it is served: what is asked then will be answered, by whomever. */
	if (keep_hold(share->fs->keep, id, fd) ||
	    share_connection_add(share, fd, share->last_connection)) {
		keep_drop(share->fs->keep, id);
		close(fd);
	}
}

static int give_key(struct share *share, struct share_connection *connection, uint32_t number)
{
	if (!connection->has_key) {
		unsigned before = HASH_COUNT(share->by_key);

		if (getrandom(connection->key, sizeof(connection->key), 0) !=
		    sizeof(connection->key))
			return -EIO;
		HASH_ADD(hh, share->by_key, key, sizeof(connection->key), connection);
		if (HASH_COUNT(share->by_key) == before)
			return -ENOMEM;
		connection->has_key = true;
	}
	return share_send_key(connection, number);
}

/* -EPIPE: the connection is to end. What an honest client may meet is answered. */
static int serve_request(struct share *share, struct share_connection *connection,
			 const struct share_request *request)
{
	int error;

	switch (request->type) {
	case GPUMEM_MSG_LEASE:
		error = share_lease(share, connection, request);
		break;
	case GPUMEM_MSG_EXTEND:
		error = share_extend(share, connection, request);
		break;
	case GPUMEM_MSG_HELLO:
		error = give_key(share, connection, request->number);
		break;
	default:
		error = share_release(share, connection, request);
		break;
	}
	if (!error || error == -EPIPE)
		return error;
	int sent = share_send_error(connection, request->number, -error);

	/* Whoever shows a token that is not his to show gets no second try. */
	return error == -EACCES ? -EPIPE : sent;
}

/* One packet, so that no connection keeps the others waiting. fds that come with it are closed by
 * the kernel: no room is given for them. */
static int serve(struct share *share, struct share_connection *connection)
{
	char packet[SHARE_REQUEST_MAX + 1];
	struct share_request request;
	/* With a keeper it stays until it has been answered, for the next daemon. */
	int peek = share->memory ? MSG_PEEK : 0;
	ssize_t n = recv(connection->fd, packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC | peek);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return -EPIPE;
	if (n > SHARE_REQUEST_MAX)
		return -EPIPE;
	int error = share_request_parse(packet, (size_t)n, &request);

	if (error == -EPROTONOSUPPORT)
		share_send_error(connection, 0, -error);
	if (error)
		return -EPIPE;
	error = serve_request(share, connection, &request);
	if (peek)
		recv(connection->fd, packet, sizeof(packet), MSG_DONTWAIT);
	share_answered(share, connection);
	return error;
}

/* Connections that never showed a token, and tokens that nobody showed. */
static void end_late(struct share *share)
{
	struct share_connection *connection, *next;
	int64_t time = now();

	token_expire(share->fs, &share->tokens);
	LOCKED(&share->serving);
	DL_FOREACH_SAFE2(share->connections, connection, next, next)
	if (connection->deadline && connection->deadline < time)
		connection_end(share, connection);
}

static void end_all(struct share *share)
{
	while (share->connections)
		connection_end(share, share->connections);
}

/* The socket and every connection made through it hold the mount: they go when it is gone. */
static void mounts_changed(struct share *share)
{
	if (share_socket_mounted(share))
		return;
	end_all(share);
	unwatch(share, share->listen_fd);
	share_socket_close(share);
}

static void handle(struct share *share, const struct epoll_event *event)
{
	LOCKED(&share->serving);
	if (event->data.ptr == &share->listen_fd) {
		accept_one(share);
	} else if (event->data.ptr == &share->mounts_fd) {
		mounts_changed(share);
	} else if (event->data.ptr != &share->stop_fd) {
		struct share_connection *connection = event->data.ptr;

		if (serve(share, connection))
			connection_end(share, connection);
	}
}

static void *run(void *pointer)
{
	struct share *share = pointer;
	struct epoll_event event;
	uint64_t stopped;
	int64_t last = now();

	/* It may have gone while there was no daemon. */
	pthread_mutex_lock(&share->serving);
	mounts_changed(share);
	pthread_mutex_unlock(&share->serving);
	/* One event at a time: handling one may free what another would name. */
	while (read(share->stop_fd, &stopped, sizeof(stopped)) < 0) {
		int n = epoll_wait(share->epoll_fd, &event, 1, TICK_MS);

		if (n > 0)
			handle(share, &event);
		if (now() != last) {
			last = now();
			end_late(share);
		}
	}
	pthread_mutex_lock(&share->serving);
	end_all(share);
	pthread_mutex_unlock(&share->serving);
	worker_end();
	return NULL;
}

static void share_free(struct share *share)
{
	share_socket_close(share);
	if (share->epoll_fd >= 0)
		close(share->epoll_fd);
	if (share->stop_fd >= 0)
		close(share->stop_fd);
	token_table_destroy(share->fs, &share->tokens);
	share_memory_close(share->memory);
	pthread_mutex_destroy(&share->lock);
	pthread_mutex_destroy(&share->serving);
	free(share);
}

static int start(struct share *share)
{
	share->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	share->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (share->epoll_fd < 0 || share->stop_fd < 0)
		return -errno;
	int error = share_memory_open(share->fs->keep, &share->memory);

	share->tokens.memory = share->memory;
	if (!error)
		error = share_socket_open(share, share->fs->options.mountpoint);
	if (!error)
		error = share_restore(share);
	if (!error)
		error = watch(share, share->stop_fd, EPOLLIN, &share->stop_fd);
	if (!error)
		error = watch(share, share->listen_fd, EPOLLIN, &share->listen_fd);
	if (!error)
		error = watch(share, share->mounts_fd, EPOLLPRI, &share->mounts_fd);
	if (!error)
		error = -pthread_create(&share->thread, NULL, run, share);
	if (error)
		end_all(share);
	return error;
}

int share_open(struct fs *fs, struct share **opened)
{
	struct share *share = calloc(1, sizeof(*share));

	if (!share)
		return -ENOMEM;
	*share = (struct share){.fs = fs,
				.epoll_fd = -1,
				.listen_fd = -1,
				.stop_fd = -1,
				.mounts_fd = -1,
				.tree_fd = -1,
				.last_connection = SHARE_KEPT_CONNECTIONS};
	pthread_mutex_init(&share->serving, NULL);
	pthread_mutex_init(&share->lock, NULL);
	token_table_init(&share->tokens);
	int error = start(share);

	if (error) {
		log_warn("%s: files cannot be shared by path: %s: %s", fs->options.mountpoint,
			 GPUMEM_SOCKET_NAME, strerror(-error));
		share_free(share);
		return error;
	}
	*opened = share;
	return 0;
}

void share_close(struct share *share)
{
	if (!share)
		return;
	eventfd_write(share->stop_fd, 1);
	pthread_join(share->thread, NULL);
	share_free(share);
}

int share_token(struct share *share, struct inode *inode, uid_t uid, enum gpumem_access access,
		struct gpumem_token *token)
{
	*token = (struct gpumem_token){.version = GPUMEM_PROTOCOL_VERSION, .access = access};
	return token_issue(share->fs, &share->tokens, inode, uid, access, token->token);
}

/* Of this user's, or NULL. Under serving. */
static struct share_connection *connection_of(const struct share *share, uid_t uid,
					      const uint8_t key[GPUMEM_KEY_BYTES])
{
	struct share_connection *connection = NULL;

	HASH_FIND(hh, share->by_key, key, GPUMEM_KEY_BYTES, connection);
	return connection && connection->uid == uid ? connection : NULL;
}

int share_lease_ask(struct share *share, struct inode *inode, uid_t uid, enum gpumem_access access,
		    const struct gpumem_lease_ask *ask)
{
	/* Another daemon can be told of what this one had read off a connection, and not of an
	 * ioctl that it answered over one. */
	if (ask->version != GPUMEM_PROTOCOL_VERSION || share->memory)
		return -EAGAIN;
	LOCKED(&share->serving);
	struct share_connection *connection = connection_of(share, uid, ask->key);

	if (!connection)
		return -ESTALE;
	int error = share_lease_at_once(share, connection, inode, access, ask->request);
	share_answered(share, connection);
	if (error != -EPIPE)
		return error ? -EAGAIN : 0;
	/* Its end is for the share thread, which may have it in hand. */
	shutdown(connection->fd, SHUT_RDWR);
	return -ESTALE;
}

int share_leased(struct share *share, uid_t uid, const uint8_t key[GPUMEM_KEY_BYTES],
		 uint64_t lease, struct inode **inode)
{
	LOCKED(&share->serving);
	struct share_connection *connection = connection_of(share, uid, key);

	return connection ? share_lease_file(connection, lease, inode) : -ESTALE;
}

void share_each(struct share *share,
		void (*each)(void *context, struct inode *inode, const struct share_holder *holder),
		void *context)
{
	struct share_connection *connection;

	LOCKED(&share->lock);
	DL_FOREACH2(share->connections, connection, next)
	{
		struct share_lease *lease, *next;

		HASH_ITER (hh, connection->leases, lease, next) {
			struct share_holder holder = {
			    .pid = connection->pid,
			    .uid = connection->uid,
			    .access = lease->access,
			    .since = lease->since,
			};

			if (lease->inode)
				each(context, lease->inode, &holder);
		}
	}
}
