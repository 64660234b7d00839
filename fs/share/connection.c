/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The list of connections to the sharing socket, and the thread that owns each busy connection. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "fs/keeper/fdstore.h"
#include "fs/share/internal.h"
#include "fs/tree/inode.h"
#include "fs/tree/user_limits.h"

/* The kernel reports a single event; each further event needs another call. */
static int connection_watch(struct share *share, struct share_connection *connection, int how)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = connection};

	return epoll_ctl(share->epoll_fd, how, connection->fd, &event) ? -errno : 0;
}

static struct share_connection *connection_new(struct share *share, int fd, uint64_t number,
					       const struct ucred *peer)
{
	struct share_connection *connection = calloc(1, sizeof(*connection));

	if (!connection)
		return NULL;
	*connection = (struct share_connection){
	    .user = share_user_get(share->queue, peer->uid),
	    .fd = fd,
	    .pid = peer->pid,
	    .uid = peer->uid,
	    .number = number,
	    .deadline = clock_seconds() + GPUMEM_TOKEN_SECONDS,
	};
	if (connection->user)
		return connection;
	free(connection);
	return NULL;
}

int share_connection_add(struct share *share, int fd, uint64_t number)
{
	struct ucred peer;
	int error = runtime_peer(fd, &peer);

	if (error)
		return error;
	error = user_limits_take(share->fs, peer.uid, USER_CONNECTIONS, 1);

	if (error)
		return error;
	struct share_connection *connection = connection_new(share, fd, number, &peer);

	error = connection ? connection_watch(share, connection, EPOLL_CTL_ADD) : -ENOMEM;
	if (error) {
		if (connection)
			share_user_put(share->queue, connection->user);
		free(connection);
		user_limits_give(share->fs, peer.uid, USER_CONNECTIONS, 1);
		return error;
	}
	scoped_lock(&share->lock);
	DL_APPEND2(share->connections, connection, previous, next);
	return 0;
}

/* Under the share's lock. */
static void connection_set_busy(struct share_connection *connection)
{
	connection->busy = true;
	atomic_store(&connection->answered, false);
}

bool share_connection_acquire(struct share *share, struct share_connection *connection)
{
	scoped_lock(&share->lock);
	connection->event_taken = true;
	if (connection->busy)
		return false;
	connection_set_busy(connection);
	return true;
}

/* Under the share's lock. A connection of this user, or NULL. */
static struct share_connection *connection_find(const struct share *share, uid_t uid,
						const uint8_t key[GPUMEM_KEY_BYTES])
{
	struct share_connection *connection = NULL;

	HASH_FIND(hh, share->by_key, key, GPUMEM_KEY_BYTES, connection);
	return connection && connection->uid == uid && !connection->ending ? connection : NULL;
}

int share_connection_acquire_key(struct share *share, uid_t uid,
				 const uint8_t key[GPUMEM_KEY_BYTES],
				 struct share_connection **taken)
{
	struct share_connection *connection;

	scoped_lock(&share->lock);
	/* Another thread may free the connection during the wait, so look it up each time. */
	while ((connection = connection_find(share, uid, key)) && connection->busy) {
		if (!atomic_load(&connection->answered))
			return -EAGAIN;
		pthread_cond_wait(&share->released, &share->lock);
	}
	if (!connection)
		return -ESTALE;
	connection_set_busy(connection);
	*taken = connection;
	return 0;
}

int share_connection_leased(struct share *share, uid_t uid, const uint8_t key[GPUMEM_KEY_BYTES],
			    uint64_t number, struct inode **inode)
{
	scoped_lock(&share->lock);
	struct share_connection *connection = connection_find(share, uid, key);

	return connection ? share_lease_file(connection, number, inode) : -ESTALE;
}

int share_connection_key(struct share *share, struct share_connection *connection)
{
	if (connection->has_key)
		return 0;
	if (getrandom(connection->key, sizeof(connection->key), 0) != sizeof(connection->key))
		return -EIO;
	scoped_lock(&share->lock);
	connection->has_key =
	    HASH_ADD_NEW(hh, share->by_key, key, sizeof(connection->key), connection);
	return connection->has_key ? 0 : -ENOMEM;
}

void share_connection_release(struct share *share, struct share_connection *connection)
{
	pthread_mutex_lock(&share->lock);
	bool ending = connection->ending;

	/* Under the lock: once the connection is not busy, the share thread may free it. */
	if (!ending && connection->event_taken)
		connection_watch(share, connection, EPOLL_CTL_MOD);
	connection->event_taken = false;
	connection->busy = ending;
	pthread_cond_broadcast(&share->released);
	pthread_mutex_unlock(&share->lock);
	if (ending)
		share_connection_free(share, connection);
}

/* Before close(): events go on while the keeper has a duplicate of the descriptor. */
static void connection_unwatch(struct share *share, struct share_connection *connection)
{
	if (connection->fd >= 0)
		epoll_ctl(share->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
}

static void connection_close(struct share *share, struct share_connection *connection)
{
	if (connection->fd < 0)
		return;
	connection_unwatch(share, connection);
	close(connection->fd);
	connection->fd = -1;
	fdstore_drop(share->fs->fdstore, fdstore_id(FDSTORE_SOCKET, connection->number));
}

/* The connection's key is not valid from here on. */
static void connection_set_ending(struct share *share, struct share_connection *connection)
{
	scoped_lock(&share->lock);
	connection->ending = true;
	pthread_cond_broadcast(&share->released);
}

void share_connection_free(struct share *share, struct share_connection *connection)
{
	connection_set_ending(share, connection);
	share_leases_end(share, connection);
	if (connection->redeemed.inode) {
		share_progress_undo(share, connection->redeemed.inode, &connection->progress);
		inode_put(share->fs, connection->redeemed.inode, 1);
	}
	pthread_mutex_lock(&share->lock);
	if (connection->has_key)
		HASH_DEL(share->by_key, connection);
	DL_DELETE2(share->connections, connection, previous, next);
	pthread_mutex_unlock(&share->lock);
	connection_close(share, connection);
	share_user_put(share->queue, connection->user);
	user_limits_give(share->fs, connection->uid, USER_CONNECTIONS, 1);
	free(connection);
}

void share_connection_end(struct share *share, struct share_connection *connection)
{
	connection_set_ending(share, connection);
	/* At once: an open connection keeps the mount from being unmounted. */
	connection_close(share, connection);
	if (connection->leases)
		share_queue_add(share->queue, connection->user, &connection->job);
	else
		share_connection_free(share, connection);
}

/* Under the share's lock. Marks the connections that are to end; returns the idle connections among
 * them. */
static struct share_job *connections_collect(struct share *share, int64_t before)
{
	struct share_job *taken = NULL;
	struct share_connection *connection;

	DL_FOREACH2(share->connections, connection, next)
	{
		bool late =
		    connection->deadline && connection->deadline < before && !connection->busy;

		if (connection->ending || (before != SHARE_ALWAYS && !late))
			continue;
		connection->ending = true;
		/* From here on no event names the connection, whichever thread frees the memory. */
		connection_unwatch(share, connection);
		if (!connection->busy)
			DL_APPEND(taken, &connection->job);
		connection->busy = true;
	}
	return taken;
}

void share_connections_end(struct share *share, int64_t before)
{
	pthread_mutex_lock(&share->lock);
	struct share_job *taken = connections_collect(share, before);

	pthread_mutex_unlock(&share->lock);
	while (taken) {
		struct share_job *job = taken;

		DL_DELETE(taken, job);
		share_connection_end(share, (struct share_connection *)job);
	}
}
